"""Shadow answers beside a real `vllm serve`: what they show, and how its rule steps back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from citer.rule import Rule
from citer.serving.evidence import Evidence
from citer.serving.promise import Promise
from citer.serving.shadow import judged
from tests.flows.servers import until
from tests.vllm.api import NEEDS_VLLM, client, counters, logged, routed_server
from tests.vllm.offline import questions

pytestmark = NEEDS_VLLM
BAD, EXACT = "every 8", "every 8 audit 1"  # the SLM's own text, and the LLM's
PROMISE = {"path": [BAD, EXACT], "graded": 0.05, "same": 0.05, "delta": 0.05}
SHADOWED = 4  # lost answers in a row that revoke it at the least `false_alarms`


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    settings = {"shadow": 1.0, "evidence": str(folder / "evidence.db"), "false_alarms": 20}
    deployed = {"rule": vars(Rule.parse(BAD))}
    card = {"threshold": deployed, "serve": {"engine": "vllm"}, "promise": PROMISE}
    with routed_server(folder, settings, **card) as address:
        yield address


def chats(url: str, count: int, **options: Any) -> list[str]:
    """Return the answers to so many chats at once."""

    def answer(problem: Any) -> str:
        messages = [{"role": "user", "content": problem.question}]
        asked = {"messages": messages, "temperature": 0, **options}
        return client(url).chat.completions.create(model="llm", **asked).choices[0].message.content

    with ThreadPoolExecutor(count) as clients:
        return [*clients.map(answer, questions(count))]


def test_a_bad_rule_is_revoked_by_what_the_texts_say(url: str, folder: Path) -> None:
    alone = chats(url, SHADOWED, extra_body={"citer": {"rule": "score 1"}})
    evidence, version = Evidence(folder / "evidence.db"), str(folder / "router")
    assert evidence.after(version) == []  # a request with its own rule is not shadowed
    routed = chats(url, SHADOWED)
    until(lambda: len(evidence.after(version)) == SHADOWED, 300)
    promise = Promise.model_validate(PROMISE)
    asked = zip(questions(SHADOWED), routed, alone, strict=True)
    bare = ((replace(problem, answer=None), *texts) for problem, *texts in asked)
    expected = [judged(promise, problem, text, llm) for problem, text, llm in bare]
    entries = evidence.after(version)
    assert sorted((e.lost, e.limit) for e in entries) == sorted(expected)
    assert {entry.rule for entry in entries} == {BAD}
    assert all(entry.lost for entry in entries)
    until(lambda: counters(url).get("citer_total step") == 1, 30)
    assert chats(url, SHADOWED) == alone  # by the stricter rule
    # The looser rule is still watched.
    until(lambda: len(evidence.after(version)) == 2 * SHADOWED, 300)
    later = evidence.after(version)[SHADOWED:]
    assert {(entry.rule, entry.lost) for entry in later} == {(BAD, True)}
    until(lambda: counters(url)["citer_total dropped"] == 0, 30)
    rows = logged(folder / "log")
    kept = {(row["question"], row["completion"]): row["reference"] for row in rows}
    for problem, text, llm in zip(questions(SHADOWED), routed, alone, strict=True):
        assert kept[problem.question, text] == kept[problem.question, llm] == llm
