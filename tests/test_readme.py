"""What the README has its reader ask, the embedded LLM answers right."""

import json
import re
from itertools import islice
from pathlib import Path

from citer.config import PairParams, load_params
from citer.data import toy
from citer.data.answers import grade
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.models.pair import load_pair

ROOT = Path(__file__).parents[1]
PAIR = ROOT / "data/pair"


def asked() -> set[str]:
    """By curl, and in Python."""
    readme = (ROOT / "README.md").read_text()
    [body] = re.findall(r"curl .* -d '(.+?)'", readme)
    [questions] = re.findall(r"model\.predict\((\[.+?\])\)", readme)
    return {*json.loads(body)["inputs"], *json.loads(questions)}


def problems() -> dict[str, Problem]:
    """The embedded test questions of arithmetic: the first that are made."""
    prepare = load_params(ROOT / "params.yaml").prepare
    rows = islice(toy.rows("math", prepare.toy.test, prepare.seed, "pipeline"), prepare.toy.test)
    return {row["problem"]: parse_row(row, "math", "reference") for row in rows}


def test_the_readme_asks_what_the_embedded_llm_answers_right() -> None:
    known = problems()
    slm, llm = PAIR / "slm", PAIR / "llm"
    pair = load_pair(
        slm, llm, PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float32")
    )
    engine = Engine(pair, slots=1, max_new_tokens=128)
    assert asked()
    for question in asked():
        prompt_ids = encode(known[question], pair.tokenizer, pair.eos_id).prompt_ids
        [answer] = engine.decode([Request(question, tuple(prompt_ids))], LLM_ALONE)
        assert grade(known[question], pair.text(answer.token_ids))
        right = f"The right answer ends in `\\boxed{{{known[question].answer}}}`."
        assert right in (ROOT / "README.md").read_text()
