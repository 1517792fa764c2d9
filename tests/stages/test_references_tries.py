"""How often the LLM is asked for a reference, sampled answers, and a killed stage."""

from dataclasses import replace
from pathlib import Path

import pytest

from citer.config.params import Params, SamplingParams
from citer.data.problems import Problem
from citer.data.tasks.grading import grade
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.evaluation.sweep import request
from citer.executors import choose as executor
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.stages import paths, references
from citer.storage.schema import SPLITS
from citer.storage.tables import PARTIAL, write_table
from tests.stages.asked import (
    LIMIT,
    Own,
    bare,
    by_llm,
    given,
    made,
    no_answer,
    with_source,
    write_splits,
)
from tests.stages.conftest import run_killed
from tests.taught import problems


def test_a_killed_stage_keeps_its_parts_and_ends_in_the_same_bytes(
    project: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_splits()
    params = with_source(project, "both", "llm")
    references.run(params)
    whole = {split: paths.referenced(split).read_bytes() for split in SPLITS}
    assert not list(PARTIAL.rglob("*.parquet"))
    for split in SPLITS:
        paths.referenced(split).unlink()
    run_killed(params, "references", module="citer.executors.choose", function="write_table")
    assert not paths.referenced("sft").exists()
    [kept] = PARTIAL.rglob("*.parquet")
    written: list[Path] = []
    monkeypatch.setattr(
        executor, "write_table", lambda *args: written.append(args[0]) or write_table(*args)
    )
    references.run(params)
    assert len(written) == 7
    assert kept not in written
    assert {split: paths.referenced(split).read_bytes() for split in SPLITS} == whole


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let the first two attempts answer another question of the task. Return it by question."""
    questions = [problem.question for problem in problems(14)]
    others = dict(zip(questions[:12], [*questions[2:12], *questions[:2]], strict=True))

    def ask(problem: Problem, pair: Pair, sampler: Sampler, attempt: int) -> Request:
        other = replace(problem, question=others[problem.question])
        return request(problem if attempt == 2 else other, pair, sampler)

    monkeypatch.setattr("citer.labelling.references.request", ask)
    return others


def test_the_llm_tries_until_it_is_right(
    project: Params, own: dict[str, Own], late: dict[str, str]
) -> None:
    write_splits()
    references.run(with_source(project, "both", tries=2))
    assert [p for p in made() if not p.choices] == [p for p in given() if not p.choices]
    references.run(with_source(project, "llm", tries=3))
    sums = [p for p in given() if not p.choices and own[p.question].right]
    assert [p for p in made() if not p.choices] == [by_llm(p, own) for p in sums]


def test_without_an_answer_the_first_finished_try_is_kept(
    project: Params, own: dict[str, Own], late: dict[str, str]
) -> None:
    write_splits(bare)
    references.run(with_source(project, "llm", "llm", tries=3))
    assert [p.reference for p in made()] == [own[late[p.question]].text for p in given()]


HOT = SamplingParams(temperature=1.0, top_k=20)


def sampled(params: Params, split: str) -> list[tuple[str, str | None]]:
    references.run(params)
    return [(p.problem_id, p.reference) for p in made(split)]


def test_sampled_tries_depend_on_seed_and_question_alone(
    project: Params, own: dict[str, Own]
) -> None:
    """At this temperature, the taught LLM is right in some tries and wrong in others."""
    write_splits()
    limits = {"sampling": HOT, "tries": 3}
    first = sampled(with_source(project, "llm", **limits), "sft")
    assert sampled(with_source(project, "llm", slots=8, **limits), "sft") == first
    reseeded = project.model_copy(update={"seed": 18})
    assert sampled(with_source(reseeded, "llm", **limits), "sft") != first
    fewer = sampled(with_source(project, "llm", sampling=HOT, tries=1), "sft")
    assert set(fewer) < set(first)
    by_id = {problem.problem_id: problem for problem in given()}
    assert all(grade(by_id[key], text) for key, text in first)


def test_against_the_llm_the_reference_is_what_the_evaluation_samples(
    project: Params, taught_pair: Pair
) -> None:
    write_splits(no_answer)
    params = with_source(project, "auto", "llm")
    section = params.evaluate.model_copy(update={"sampling": HOT})
    references.run(params.model_copy(update={"evaluate": section}))
    engine, sampler = Engine(taught_pair, 1, LIMIT), Sampler(HOT, params.seed)
    expected = {}
    for problem in given("test"):
        (answer,) = engine.decode([request(problem, taught_pair, sampler)], LLM_ALONE)
        if not answer.truncated:
            expected[problem.problem_id] = taught_pair.text(answer.token_ids)
    assert {p.problem_id: p.reference for p in made("test")} == expected
    assert expected
