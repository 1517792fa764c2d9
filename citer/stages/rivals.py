"""What a router must beat, once for all iterations: each model alone, entropy, chance."""

from pathlib import Path

from citer.config import Params
from citer.data.problems import read_problems
from citer.evaluation.points import write_findings
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
    with replacing(paths.RIVALS) as aside:
        aside.mkdir()
        write_findings(aside, study.rivals(), params.evaluate, study.stamp)
