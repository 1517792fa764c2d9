"""Killed and concurrent calls of `citer generate`."""

from collections.abc import Callable, Iterator
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import pytest

from citer.data.problems import Problem
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.rule import Rule
from citer.serving.deployment import Deployment, Reply
from citer.serving.generate import line
from citer.storage.tables import read_json
from tests.generate.project import MATH, RULE, Project, own_pair
from tests.heads import random_router


def test_a_killed_call_resumes_after_its_last_whole_answer(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule("risk", 0.5, audit=0.5)
    undisturbed = project.generate(rule)
    project.output.unlink()
    project.killed(3, rule)
    assert not project.output.exists()
    [partial] = project.folder.glob(".out.jsonl.*.partial")
    with partial.open("a") as file:
        file.write('{"problem_id": "to')
    replied: list[Problem] = []
    monkeypatch.setattr(Deployment, "replies", noting(replied))
    assert project.generate(rule) == undisturbed
    assert [problem.question for problem in replied] == [MATH[2]["problem"]]
    assert not partial.exists()


def test_answers_of_an_output_with_a_longer_name_stay(project: Project) -> None:
    other, older, own = (
        project.folder / f".out.jsonl.{end}"
        for end in ("more.0123456789ab.partial", "x", "0123456789ab.partial")
    )
    for file in (other, older, own):
        file.touch()
    project.generate()
    assert other.exists()
    assert older.exists()
    assert not own.exists()


def test_a_full_disk_is_reported_with_the_output_and_the_next_call_resumes(
    project: Project,
) -> None:
    project.generate()
    expected = project.output.read_bytes()
    project.output.unlink()
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (len(expected) // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            project.generate()
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(project.output)
    project.generate()
    assert project.output.read_bytes() == expected


def test_a_killed_call_is_not_resumed_with_another_rule(project: Project) -> None:
    project.killed(2, Rule("score", 0.0))
    lines = project.generate(Rule("score", 1.0))
    assert all(line["llm_tokens"] == line["tokens"] for line in lines)
    assert list(project.folder.glob(".*.partial")) == []


@pytest.mark.parametrize("changed", ["router", "questions"])
def test_a_killed_call_is_not_resumed_with_another_router_or_other_questions(
    project: Project, changed: str
) -> None:
    project.killed(2, RULE)
    if changed == "router":
        other = random_router(own_pair(project.params).slm.hidden_size, seed=1)
        write_bundle(project.bundle, other, read_json(project.bundle / "router.json"))
    else:
        project.write(MATH[::-1])
    project.generate(RULE)
    resumed = project.output.read_bytes()
    project.generate(RULE)
    assert project.output.read_bytes() == resumed


def test_two_calls_cannot_write_the_same_output(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_up = []

    def meanwhile(*arguments: Any) -> dict:
        for rule in (Rule("score", 0.0), Rule("score", 1.0)):
            with pytest.raises(InputError, match=r"out\.jsonl: another `citer generate`"):
                project.generate(rule)
            taken_up.append(rule)
        return line(*arguments)

    monkeypatch.setattr("citer.serving.generate.line", meanwhile)
    assert len(project.generate(Rule("score", 0.0))) == len(MATH)
    assert len(taken_up) == 2 * len(MATH)


def noting(seen: list[Problem]) -> Callable[..., Iterator[Reply]]:
    """Wrap `Deployment.replies`: append its problems to a list."""
    replies = Deployment.replies

    def wrapper(self: Deployment, problems: list[Problem], *rest: Any) -> Iterator[Reply]:
        seen.extend(problems)
        return replies(self, problems, *rest)

    return wrapper
