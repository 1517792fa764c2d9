"""The embedded LLM correctly answers the questions in README.md and docs/operations.md."""

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from citer.config.params import PairParams, load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.tasks.grading import grade
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.demo import toy
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.serving.server.fields import Chat
from tests.heads import random_router

ROOT = Path(__file__).parents[1]
PAIR = ROOT / "data/pair"
TEXTS = ("README.md", "docs/operations.md")


def documented_questions() -> set[str]:
    """Return the questions on the command line, to both servers and in Python."""
    readme, operations = ((ROOT / name).read_text() for name in TEXTS)
    [row] = re.findall(r"echo '(.+?)' > ", readme)
    [questions] = re.findall(r"router\.predict\((\[.+?\])\)", operations)
    [body] = re.findall(r"curl .* -d '(.+?)'", operations, re.DOTALL)
    asked = [json.loads(row)["problem"], documented_chat()["messages"][-1]["content"]]
    return {*asked, *json.loads(questions), *json.loads(body)["inputs"]}


def documented_chat() -> dict[str, Any]:
    """Return the body that README sends to `citer serve`."""
    [body] = re.findall(r"curl .* -d '(.+?)'", (ROOT / "README.md").read_text(), re.DOTALL)
    chat: dict[str, Any] = json.loads(body)
    return chat


def problems() -> dict[str, Problem]:
    """Return the embedded arithmetic questions of the test split."""
    params = load_params(ROOT / "params.yaml")
    count = params.prepare.toy.test
    rows = islice(toy.rows("math", count, params.seed, "pipeline"), count)
    return {row["problem"]: parse_row(row, "math", "reference") for row in rows}


def test_the_server_takes_the_documented_chat() -> None:
    served = load_params(ROOT / "params.yaml").register_.model_name
    assert Chat.model_validate(documented_chat()).model == served


def test_the_embedded_llm_answers_the_questions_of_the_documents_correctly() -> None:
    known = problems()
    slm, llm = PAIR / "slm", PAIR / "llm"
    params = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float32")
    pair = load_pair(PairFolder(slm, llm), params)
    engine = Engine(pair, slots=1, max_new_tokens=128)
    for question in documented_questions():
        prompt_ids = pair.prompts.prompt_ids(known[question])
        [answer] = engine.decode([Request(question, tuple(prompt_ids))], LLM_ALONE)
        assert grade(known[question], pair.text(answer.token_ids))
        assert f"{known[question].answer} is right" in (ROOT / "README.md").read_text()


def test_the_documented_loop_prints_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example of docs/operations.md, with a router of random weights and no finetuned SLM."""
    [code] = re.findall(
        r"```python\n(from pathlib .+?)```", (ROOT / TEXTS[1]).read_text(), re.DOTALL
    )
    files = PairFolder(PAIR / "slm", PAIR / "llm")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("citer.stages.folders.finetuned_pair", lambda params: files)
    router = random_router(files.slm.config.hidden_size)
    monkeypatch.setattr("citer.models.bundle.read_bundle", lambda path: (router, {}))
    scope: dict[str, Any] = {}
    exec(code, scope)
    routed = [scope["Request"]("2", tuple(scope["prompt_ids"]))]
    [answer] = scope["engine"].decode(routed, scope["policy"])
    assert capsys.readouterr().out == scope["pair"].text(answer.token_ids)
