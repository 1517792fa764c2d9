"""Rows of answers: what audits checked, and their verdicts."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from citer.data.importing import parse_row
from citer.models.pair import Pair
from citer.rule import Rule
from citer.storage.schema import AUDITED
from citer.storage.tables import write_table
from tests.decoding.reference import next_logits
from tests.generate.project import MATH, MAX_NEW_TOKENS, MC, Project, own_pair

OFTEN_REJECTS = Rule("every", 3, audit=0.05)


def flat(rows: list[dict]) -> list[dict]:
    return [found for row in rows for found in row["disagreements"]]


def test_an_exact_rule_lists_each_token_at_which_the_slm_differs_from_the_llms_answer(
    project: Project,
) -> None:
    """The rule visits the LLM only at the end, so every position is audited."""
    rows, lines = project.audited(Rule("risk", 0.0, audit=1.0))
    assert flat(rows) == list(differences(own_pair(project.params), MATH))
    assert flat(rows)
    assert [row["audited"] for row in rows] == [list(range(line["tokens"])) for line in lines]
    by_llm = [[token["by"] == "llm" for token in line["written"]] for line in lines]
    assert [sum(each) for each in by_llm] == [line["rejected"] for line in lines]


def differences(pair: Pair, questions: list[dict]) -> Iterator[dict]:
    """Compare the models along the LLM's answers, with a whole forward for each token."""
    for question in questions:
        problem = parse_row(question, "math", requires="question")
        ids = list(pair.prompts.prompt_ids(problem))
        for position in range(MAX_NEW_TOKENS):
            slm, llm, odds = verdict(pair, ids)
            if slm != llm:
                yield {
                    "position": position,
                    "slm_token": slm,
                    "llm_token": llm,
                    "slm_text": pair.tokenizer.decode([slm]),
                    "llm_text": pair.tokenizer.decode([llm]),
                    "odds": pytest.approx(odds, rel=1e-3),
                    "rejected": True,
                }
            ids.append(llm)
            if llm in pair.eos_ids:
                break


def verdict(pair: Pair, ids: list[int]) -> tuple[int, int, float]:
    """Return both models' next tokens, and the odds of the SLM's."""
    llm_logits = next_logits(pair, pair.llm, ids)
    slm, llm = int(next_logits(pair, pair.slm, ids).argmax()), int(llm_logits.argmax())
    return slm, llm, float((llm_logits[slm] - llm_logits[llm]).exp())


@pytest.mark.parametrize(
    "rule", [OFTEN_REJECTS, Rule("risk", 0.4, 0.3), Rule("score", 0.4, 0.1)], ids=str
)
def test_each_position_is_audited_at_most_once_and_its_verdict_is_the_llms(
    project: Project, rule: Rule
) -> None:
    """The oracle reads the final answer, with a whole forward of each model for each token."""
    rows, lines = project.audited(rule)
    pair, rejections = own_pair(project.params), 0
    for row, line, question in zip(rows, lines, MATH, strict=True):
        prompt_ids = pair.prompts.prompt_ids(parse_row(question, "math", requires="question"))
        rejected = {d["position"]: d["slm_token"] for d in row["disagreements"] if d["rejected"]}
        assert row["audited"] == sorted({*row["audited"]})
        assert (len(row["audited"]), len(rejected)) == (line["audited"], line["rejected"])
        for position in row["audited"]:
            slm, llm, odds = verdict(pair, [*prompt_ids, *row["token_ids"][:position]])
            assert rejected.get(position) == (slm if odds < rule.audit else None)
            assert row["token_ids"][position] == (llm if odds < rule.audit else slm)
        by_llm = {n for n, token in enumerate(line["written"]) if token["by"] == "llm"}
        assert by_llm & {*row["audited"]} == {*rejected}
        rejections += len(rejected)
    assert rejections >= 3


@pytest.mark.parametrize(("task", "asked"), [("math", MATH), ("mc", MC)])
def test_a_row_has_the_question_and_the_answer_as_they_were(
    project: Project, task: str, asked: list[dict]
) -> None:
    project.write(asked)
    rows, lines = project.audited(OFTEN_REJECTS)
    for row, line, question in zip(rows, lines, asked, strict=True):
        problem = asdict(parse_row(question, task, requires="question"))
        problem["choices"] = problem["choices"] and list(problem["choices"])
        for name in ("problem_id", "task", "question", "choices", "messages", "answer"):
            assert row[name] == problem[name]
        assert row["completion"] == line["completion"]
        assert row["truncated"] == line["truncated"]
        assert len(row["token_ids"]) == line["tokens"]


def test_only_tokens_with_low_odds_are_rolled_back(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    table, lines = project.audited(OFTEN_REJECTS)
    rows = flat(table)
    assert {row["rejected"] for row in rows} == {True, False}
    assert all(row["rejected"] == (row["odds"] < OFTEN_REJECTS.audit) for row in rows)
    rejected = sum(line["rejected"] for line in lines)
    assert rejected == sum(row["rejected"] for row in rows)
    text = " ".join(capsys.readouterr().out.split())
    counts_shown = re.search(
        r"of (\d+) audited tokens (\d+) agreed, (\d+) audits rejected a token", text
    )
    assert counts_shown
    seen, agreed, rolled_back = map(int, counts_shown.groups())
    assert (seen - agreed, rolled_back) == (len(rows), rejected)
    assert "by `every 3 audit 0.05`" in text


def test_pandas_makes_a_flat_table_as_the_manual_says(project: Project) -> None:
    rows, _ = project.audited(OFTEN_REJECTS)
    manual = Path(__file__).parents[2] / "docs/operations.md"
    [code] = re.findall(r"```python\n(import pandas.*?explode.*?)```", manual.read_text(), re.S)
    table = pa.Table.from_pylist(rows, AUDITED)
    write_table(Path("data/own/traffic/1.parquet"), table, AUDITED, {})
    names: dict[str, Any] = {}
    exec(code, names)
    expected = [{"problem_id": row["problem_id"]} | d for row in rows for d in row["disagreements"]]
    assert isinstance(names["flat"], pd.DataFrame)
    assert names["flat"].to_dict("records") == expected
