"""Killed and concurrent calls of `citer generate`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import pytest

from citer.config.params import Params
from citer.data.problems import Problem
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.rule import Rule
from citer.serving.deployment import Deployment, Reply
from citer.serving.generate import generate, line
from citer.storage.tables import read_json
from tests.generate.project import (
    MATH,
    answered,
    answers,
    own_pair,
)
from tests.heads import random_router


def test_a_killed_call_resumes_after_its_last_whole_answer(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule("risk", 0.5, audit=0.5)
    undisturbed = answered(params, bundle, tmp_path, rule)
    output = tmp_path / "out.jsonl"
    output.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("citer.serving.generate.line", killed_at(3))
        with pytest.raises(KeyboardInterrupt):
            answered(params, bundle, tmp_path, rule)
    assert not output.exists()
    [partial] = tmp_path.glob(".out.jsonl.*.partial")
    with partial.open("a") as file:
        file.write('{"problem_id": "to')
    replied: list[Problem] = []
    with monkeypatch.context() as patch:
        patch.setattr(Deployment, "replies", noting(replied))
        assert answered(params, bundle, tmp_path, rule) == undisturbed
    assert [problem.question for problem in replied] == [MATH[2]["problem"]]
    assert not partial.exists()


def test_answers_of_an_output_with_a_longer_name_stay(
    params: Params, bundle: Path, tmp_path: Path
) -> None:
    other, older = tmp_path / ".out.jsonl.more.0123456789ab.partial", tmp_path / ".out.jsonl.x"
    own = tmp_path / ".out.jsonl.0123456789ab.partial"
    for file in (other, older, own):
        file.touch()
    answered(params, bundle, tmp_path, Rule("score", 0.5))
    assert other.exists()
    assert older.exists()
    assert not own.exists()


def test_a_full_disk_is_reported_with_the_output_and_the_next_call_resumes(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    rule = Rule("score", 0.5)
    generate(params, bundle, source, output, rule)
    expected = output.read_bytes()
    output.unlink()
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (len(expected) // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            generate(params, bundle, source, output, rule)
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(output)
    generate(params, bundle, source, output, rule)
    assert output.read_bytes() == expected


def test_a_killed_call_is_not_resumed_with_another_rule(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    with monkeypatch.context() as patch:
        patch.setattr("citer.serving.generate.line", killed_at(2))
        with pytest.raises(KeyboardInterrupt):
            generate(params, bundle, source, output, Rule("score", 0.0))
    generate(params, bundle, source, output, Rule("score", 1.0))
    assert all(line["llm_tokens"] == line["tokens"] for line in answers(output))
    assert list(tmp_path.glob(".*.partial")) == []


@pytest.mark.parametrize("changed", ["router", "questions"])
def test_a_killed_call_is_not_resumed_with_another_router_or_other_questions(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    source, output, rule = tmp_path / "q.jsonl", tmp_path / "out.jsonl", Rule("score", 0.5)
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    with monkeypatch.context() as patch:
        patch.setattr("citer.serving.generate.line", killed_at(2))
        with pytest.raises(KeyboardInterrupt):
            generate(params, bundle, source, output, rule)
    if changed == "router":
        other = random_router(own_pair(params).slm.hidden_size, seed=1)
        write_bundle(bundle, other, read_json(bundle / "router.json"))
    else:
        source.write_text("\n".join(json.dumps(row) for row in MATH[::-1]))
    generate(params, bundle, source, output, rule)
    resumed = output.read_bytes()
    generate(params, bundle, source, output, rule)
    assert output.read_bytes() == resumed


def test_two_calls_cannot_write_the_same_output(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    taken_up = []

    def meanwhile(*arguments: Any) -> dict:
        for rule in (Rule("score", 0.0), Rule("score", 1.0)):
            with pytest.raises(InputError, match=r"out\.jsonl: another `citer generate`"):
                generate(params, bundle, source, output, rule)
            taken_up.append(rule)
        return line(*arguments)

    monkeypatch.setattr("citer.serving.generate.line", meanwhile)
    generate(params, bundle, source, output, Rule("score", 0.0))
    assert len(taken_up) == 2 * len(MATH)
    assert len(answers(output)) == len(MATH)


def killed_at(number: int) -> Callable[..., dict]:
    """Wrap `line`: raise KeyboardInterrupt at the answer of this number."""
    seen = 0

    def wrapper(*arguments: Any) -> dict:
        nonlocal seen
        seen += 1
        if seen == number:
            raise KeyboardInterrupt
        return line(*arguments)

    return wrapper


def noting(seen: list[Problem]) -> Callable[..., Iterator[Reply]]:
    """Wrap `Deployment.replies`: append its problems to a list."""
    replies = Deployment.replies

    def wrapper(self: Deployment, problems: list[Problem], *rest: Any) -> Iterator[Reply]:
        seen.extend(problems)
        return replies(self, problems, *rest)

    return wrapper
