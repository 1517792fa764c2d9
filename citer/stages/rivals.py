"""What a router must beat, once for all iterations: each model alone, entropy, chance."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from citer.config import Params
from citer.data.problems import read_problems
from citer.evaluation.points import RIVALS, Row, write_findings
from citer.evaluation.report import ENDS, label
from citer.evaluation.study import Study
from citer.io import replacing
from citer.models.pair import load_pair
from citer.models.room import check_room
from citer.stages import paths


def run(params: Params) -> None:
    """Answer validation and test without a router.

    Raises InputError for a question that leaves its answer no room in the models' context.
    """
    validation, test = (read_problems(paths.problems(split)) for split in ("validation", "test"))
    named = ((f"{paths.problems(p.split)}: problem {p.problem_id}", p) for p in validation + test)
    check_room(named, paths.SLM, Path(params.pair.llm), params.evaluate.max_new_tokens)
    pair = load_pair(paths.SLM, Path(params.pair.llm), params.pair)
    study = Study(pair, validation, test, params.evaluate)
    found = study.rivals()
    with replacing(paths.RIVALS) as aside:
        aside.mkdir()
        write_findings(aside, found, params.evaluate, study.stamp | RIVALS)
    Console().print(_summary(found.points), highlight=False, soft_wrap=True)


def _summary(points: Iterable[Row]) -> str:
    """Whether there is anything to route for, before hours go into labels."""
    alone = [row for row in points if row["method"] in ENDS and row["task"] == "all"]
    said = [
        f"{label(row['method'])} {row['accuracy']:.1%} right, {row['truncated_share']:.1%} cut off"
        for row in alone
    ]
    return f"rivals, on test: {'; '.join(said)}"
