"""A taught pair in float64, and the joined token table of its problems."""

from typing import NamedTuple

import pyarrow as pa
import pytest

from citer.config.params import PairParams, Params, ScoreParams
from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tokens import read_tokens
from citer.executors.base import WorkerParams
from citer.labelling.scoring import score_half
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from tests.taught import make_taught_pair, problems


class Taught(NamedTuple):
    pair: Pair
    problems: dict[str, Problem]
    examples: dict[str, Encoded]
    tokens: pa.Table


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    folder = tmp_path_factory.mktemp("taught")
    questions = problems(12)
    folders = PairFolder(*make_taught_pair(folder, questions))
    placement = PairParams(slm="slm", llm="llm", device="cpu", dtype="float64")
    pair = load_pair(folders, placement)
    score, workers = ScoreParams(batch_tokens=600), WorkerParams()
    params = Params.model_construct(pair=placement, score=score, workers=workers)
    for name in ("slm", "llm"):
        score_half(name, folders, questions, folder / "tokens" / name, params)
    examples = pair.prompts.encode_all(questions)
    tokens = read_tokens(folder / "tokens/slm", folder / "tokens/llm", examples)
    return Taught(pair, {problem.problem_id: problem for problem in questions}, examples, tokens)
