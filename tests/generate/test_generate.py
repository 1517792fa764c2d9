"""Answers and grades of `citer generate`."""

from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import routed
from citer.models.bundle import read_bundle
from citer.rule import Rule
from citer.serving.deployment import Deployment
from citer.serving.generate import generate
from tests.decoding.reference import by_llm
from tests.generate.project import (
    MATH,
    MAX_NEW_TOKENS,
    MC,
    RULE,
    Project,
    answers,
    own_pair,
    parsed,
)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_every_question_is_answered_in_order_and_graded_if_it_has_an_answer(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = project.generate()
    assert [line["question"] for line in lines] == [row["problem"] for row in MATH]
    assert [line["correct"] is None for line in lines] == [False, True, False]
    assert "3 answers by `score 0.5`, 0 of 2 right" in printed(capsys)


def test_rows_are_recognised_as_the_tasks_that_the_router_was_trained_on(
    of_numbers: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    of_numbers.write([{"problem": "What is 3 + 4?", "solution": "It is 7."}])
    of_numbers.generate()
    assert "1 answers by `score 0.5`, 0 of 1 right" in printed(capsys)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_benchmarks_rows_are_recognised_and_graded_from_every_kind_of_file(
    project: Project, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    frame = pd.DataFrame([{"question": "What is 3 + 4?", "answer": "3 + 4 = 7\n#### 7"}])
    source = project.folder / f"q.{kind}"
    if kind == "csv":
        frame.to_csv(source, index=False)
    else:
        frame.to_parquet(source)
    generate(project.params, project.bundle, source, project.output)
    [line] = answers(project.output)
    assert (line["question"], line["correct"]) == ("What is 3 + 4?", False)
    shown = printed(capsys)
    assert f"{source}: 1 gsm8k rows (recognised by" in shown
    assert "1 answers by `score 0.5`, 0 of 1 right" in shown


def test_tokens_and_origins_equal_those_of_the_engine(project: Project) -> None:
    project.write(MC)
    [line] = project.generate()
    pair = own_pair(project.params)
    prompt = "Choose the right option and name its letter.\nQuestion: Which is a planet?\n"
    ids = pair.tokenizer(prompt + "(1) Mars\n(2) the Sun\nAnswer:\n").input_ids
    policy = routed(read_bundle(project.bundle)[0], RULE)
    [expected] = Engine(pair, 1, 12).decode([Request("one", tuple(ids))], policy)
    assert [token["by"] == "llm" for token in line["written"]] == list(by_llm(expected))
    texts = [pair.tokenizer.decode([token]) for token in expected.token_ids]
    assert [token["text"] for token in line["written"]] == texts
    assert expected.counts._asdict().items() <= line.items()
    assert line["visits"] > 0


@pytest.mark.parametrize("tau", [0, 1])
def test_a_given_rule_replaces_the_rule_of_the_bundle(project: Project, tau: float) -> None:
    for line in project.generate(Rule("score", tau)):
        assert line["llm_tokens"] == tau * line["tokens"]


@pytest.mark.parametrize(
    "rule", ["every 4 audit 1 from lookup", "risk 0.5 audit 1 from both cap 3"]
)
def test_copied_drafts_and_caps_give_the_llms_own_answers(project: Project, rule: str) -> None:
    written = []
    for each in ("score 1", rule):
        lines = project.generate(Rule.parse(each))
        written.append([token["text"] for line in lines for token in line["written"]])
        project.output.unlink()
    assert written[0] == written[1]


def test_threads_can_share_a_deployment(deployment: Deployment) -> None:
    def completions(_: int) -> list[str]:
        return [reply.completion for reply in deployment.replies(parsed(MATH))]

    alone = completions(0)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(completions, range(8))) == [alone] * 8


def test_replies_keep_the_order_of_the_problems_and_are_counted_one_by_one(
    deployment: Deployment,
) -> None:
    counted: list[float] = []
    replies = list(deployment.replies(parsed(MATH), counted.append))
    assert [reply.problem.question for reply in replies] == [row["problem"] for row in MATH]
    assert counted == [1, 1, 1]


def test_the_first_reply_does_not_wait_for_the_last_answer(deployment: Deployment) -> None:
    """A reply waits only until the earlier ones are decoded."""
    counted: list[float] = []
    questions = parsed([{"problem": f"{n} + 1?"} for n in range(40)])
    first = next(deployment.replies(questions, counted.append))
    assert first.problem.question == "0 + 1?"
    assert len(counted) <= MAX_NEW_TOKENS + 1
