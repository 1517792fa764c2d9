"""What a router must beat, once for all iterations: each model alone, entropy, chance."""

from pathlib import Path

from citer.config import Params
from citer.data.problems import read_problems
from citer.evaluation.points import write_findings
from citer.evaluation.study import Study
from citer.io import replacing
from citer.models.pair import load_pair
from citer.stages import paths


def run(params: Params) -> None:
    """Answer validation and test without a router."""
    validation, test = (read_problems(paths.problems(split)) for split in ("validation", "test"))
    pair = load_pair(paths.SLM, Path(params.pair.llm), params.pair)
    study = Study(pair, validation, test, params.evaluate)
    with replacing(paths.RIVALS) as aside:
        aside.mkdir()
        write_findings(aside, study.rivals(), params.evaluate, study.stamp)
