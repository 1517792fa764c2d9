"""Rows with `messages`: the last turn is the question, the others belong to the problem."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from citer.data.importing import load_problems, parse_row, recognised
from citer.data.problems import Message, read_problems, write_problems
from citer.data.prompts import PlainPrompts, PromptSettings
from citer.data.splits import separate
from citer.data.tasks import TASKS
from citer.errors import InputError
from citer.models.pair import Pair

USER, ANSWER = {"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}
LAST = {"role": "user", "content": " And 3 + 3? "}
SYSTEM = {"role": "system", "content": "Be brief."}
OPTIONS = {"choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]}, "answerKey": "A"}


def test_the_last_turn_is_the_question_and_the_others_come_before_it() -> None:
    row = {"messages": [SYSTEM, USER, ANSWER, LAST], "answer": "6"}
    assert recognised(row, [*TASKS]).task == "math"
    problem = parse_row(row, "math", "answer")
    assert problem.question == "And 3 + 3?"
    assert problem.answer == "6"
    assert problem.messages == tuple(Message(**turn) for turn in (SYSTEM, USER, ANSWER))
    assert problem.conversation == "What is 2 + 2?\n4\nAnd 3 + 3?"
    assert problem.characters == len("Be brief.\nWhat is 2 + 2?\n4\nAnd 3 + 3?")


def test_messages_belong_to_a_task_in_use() -> None:
    row = {"messages": [USER]}
    assert recognised(row, ["contains", "exact"]).task == "exact"
    assert recognised(row | OPTIONS, ["contains", "mc"]).task == "mc"


def test_a_single_turn_is_the_same_problem_as_its_question() -> None:
    single = parse_row({"messages": [USER]}, "math", "question")
    assert single == parse_row({"problem": "What is 2 + 2?"}, "math", "question")


def test_other_turns_make_another_problem_and_no_duplicate() -> None:
    other = USER | {"content": "What is 3 + 2?"}
    rows: list[list[dict[str, Any]]] = [
        [LAST],
        [USER, ANSWER, LAST],
        [other, ANSWER, LAST],
        [other, ANSWER, LAST],
    ]
    problems = [parse_row({"messages": turns}, "math", "question") for turns in rows]
    assert len({problem.problem_id for problem in problems}) == 3
    splits = ("test", "sft", "validation", "sft")
    separated = separate(zip(splits, problems, strict=True))
    assert [len(separated.splits[split]) for split in ("test", "sft", "validation")] == [1, 1, 1]
    assert [problem.problem_id for problem in separated.duplicates] == [problems[2].problem_id]


def test_a_system_message_makes_another_problem_of_the_same_split() -> None:
    formal = SYSTEM | {"content": "Be formal."}
    rows: list[list[dict[str, Any]]] = [[LAST], [SYSTEM, LAST], [formal, LAST]]
    problems = [parse_row({"messages": turns}, "math", "question") for turns in rows]
    separated = separate(zip(("test", "test", "sft"), problems, strict=True))
    assert separated.splits["test"] == [replace(each, split="test") for each in problems[:2]]
    assert separated.duplicates == [replace(problems[2], split="sft")]


def test_turns_are_stored_in_the_problem_table(tmp_path: Path) -> None:
    problems = [
        parse_row({"messages": turns}, "math", "question")
        for turns in ([LAST], [USER, ANSWER, LAST])
    ]
    write_problems(tmp_path / "p.parquet", problems, {})
    assert read_problems(tmp_path / "p.parquet") == problems
    assert problems[0].messages is None


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ("Hi", "messages: 'Hi'; expected a list of turns such as"),
        ([], "messages: []; expected a list"),
        (["Hi"], "messages.0: 'Hi'; expected a turn such as"),
        ([LAST | {"name": "Jana"}], "messages.0: {"),
        ([{"role": "user"}], "messages.0.content: missing; expected the text of a turn"),
        ([USER, ANSWER, LAST | {"content": " "}], "messages.2.content: ' '; expected a text"),
        ([LAST | {"content": [{"type": "image"}]}], "messages.0.content: [{"),
        ([LAST | {"role": "tool"}], "messages.0.role: 'tool'; expected 'system', 'user', 'assist"),
        ([LAST | {"role": ["user"]}], "messages.0.role: ['user']; expected 'system'"),
        ([USER, SYSTEM, LAST], "messages.1.role: 'system'; expected a system turn only at the"),
        ([USER, ANSWER], "messages.1.role: 'assistant'; expected 'user' at the end"),
    ],
)
def test_wrong_turns_are_refused(messages: object, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_row({"messages": messages}, "math", "question")
    assert str(caught.value).startswith(complaint)


def test_a_question_besides_messages_is_refused() -> None:
    with pytest.raises(InputError, match=r"^problem: given besides `messages`; expected one of"):
        parse_row({"messages": [LAST], "problem": "3?"}, "math", "question")


def test_plain_prompts_refuse_earlier_turns(pair: Pair) -> None:
    prompts = PlainPrompts(PromptSettings(), pair.tokenizer, [0])
    assert prompts.prompt_ids(parse_row({"messages": [LAST]}, "math", "question"))
    with pytest.raises(InputError, match=r"^messages: turns before the question; expected pair.pr"):
        prompts.prompt_ids(parse_row({"messages": [SYSTEM, LAST]}, "math", "question"))


GSM8K = {"messages": [SYSTEM, USER], "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}


def test_rows_of_gsm8k_may_have_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GSM8K) + "\n")
    [(_, problem)] = load_problems(path, ["number"], "reference")
    assert (problem.question, problem.answer) == ("What is 2 + 2?", "4")
    assert problem.reference == "2 + 2 = 4\nThe final answer is: \\boxed{4}"
    said = "1 gsm8k rows (recognised by `question` and `answer` with ####)"
    assert said in capsys.readouterr().out


def test_other_keys_of_a_turn_may_be_null_as_in_files_of_mixed_chats() -> None:
    bare = parse_row({"messages": [SYSTEM, LAST]}, "math", "question")
    padded = [turn | {"name": None, "tool_calls": None} for turn in (SYSTEM, LAST)]
    assert parse_row({"messages": padded}, "math", "question") == bare


def test_an_earlier_answer_may_be_empty() -> None:
    turns = [USER, ANSWER | {"content": ""}, LAST]
    found = parse_row({"messages": turns}, "math", "question").messages
    assert found
    assert [each.content for each in found] == ["What is 2 + 2?", ""]
