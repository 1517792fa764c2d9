"""`citer generate`: the last step, on a tiny pair."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from citer.config import Params, load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import routed
from citer.errors import InputError
from citer.generate import _line, generate
from citer.io import read_table, table_metadata
from citer.models.bundle import identity, read_bundle, write_bundle
from citer.models.pair import Pair, load_pair
from citer.models.router import Head, Router
from citer.rule import Rule
from citer.schema import DISAGREEMENT
from citer.serving import Deployment, Reply, deploy
from tests.decoding.reference import next_logits
from tests.heads import random_router
from tests.tiny import make_tiny_pair

MATH = [
    {"problem": "What is 3 + 4?", "solution": "It is \\boxed{7}."},
    {"problem": "What is 2 * 5?"},
    {"problem": "What is 9 - 1?", "answer": "8"},
]
MC = [
    {
        "question": "Which is a planet?",
        "choices": {"text": ["Mars", "the Sun"], "label": ["1", "2"]},
        "answerKey": "1",
    }
]
RULE = Rule("score", 0.5)
MAX_NEW_TOKENS = 12


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A project folder with a finetuned SLM in its place; few and short answers."""
    loaded = load_params()
    slm, llm = make_tiny_pair(tmp_path / "pair")
    monkeypatch.chdir(tmp_path)
    Path("data/models").mkdir(parents=True)
    slm.rename("data/models/slm")
    pair = loaded.pair.model_copy(update={"llm": str(llm), "slm": str(slm)})
    limits = loaded.evaluate.model_copy(update={"slots": 2, "max_new_tokens": MAX_NEW_TOKENS})
    return loaded.model_copy(update={"pair": pair, "evaluate": limits})


@pytest.fixture
def bundle(params: Params, tmp_path: Path) -> Path:
    pair = own_pair(params)
    router = random_router(pair.slm.hidden_size)
    write_bundle(
        tmp_path / "bundle", router, identity(pair) | {"threshold": {"rule": asdict(RULE)}}
    )
    return tmp_path / "bundle"


def own_pair(params: Params) -> Pair:
    return load_pair(Path("data/models/slm"), Path(params.pair.llm), params.pair)


def answers(output: Path) -> list[dict]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_every_question_is_answered_in_order_and_graded_where_it_can_be(
    params: Params, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "questions.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    generate(params, bundle, source, output)
    lines = answers(output)
    assert [line["question"] for line in lines] == [row["problem"] for row in MATH]
    assert [line["correct"] is None for line in lines] == [False, True, False]
    assert "3 answers by `score 0.5`, 0 of 2 right" in " ".join(capsys.readouterr().out.split())


def test_tokens_and_origins_are_the_engines(params: Params, bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "mc.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MC))
    generate(params, bundle, source, output)
    [line] = answers(output)
    pair = own_pair(params)
    prompt = "Choose the right option and name its letter.\nQuestion: Which is a planet?\n"
    ids = pair.tokenizer(prompt + "(1) Mars\n(2) the Sun\nAnswer:\n").input_ids
    policy = routed(read_bundle(bundle)[0], RULE)
    [expected] = Engine(pair, 1, 12).decode([Request("one", tuple(ids))], policy)
    assert [token["by"] == "llm" for token in line["written"]] == list(expected.by_llm)
    texts = [pair.tokenizer.decode([token]) for token in expected.token_ids]
    assert [token["text"] for token in line["written"]] == texts
    assert expected.counts._asdict().items() <= line.items()
    assert line["visits"] > 0


@pytest.mark.parametrize(("tau", "share"), [(0, 0), (1, 1)])
def test_a_given_rule_stands_in_for_the_bundles(
    params: Params, bundle: Path, tmp_path: Path, tau: float, share: float
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MATH[1]))
    generate(params, bundle, source, output, Rule("score", tau))
    [line] = answers(output)
    assert line["llm_tokens"] == share * line["tokens"]


def test_where_an_exact_rule_disagrees_is_where_the_slm_would_leave_the_llms_answer(
    params: Params, bundle: Path, tmp_path: Path
) -> None:
    """Visited only at its end, an answer is audited at every position."""
    rows, lines = audited(params, bundle, tmp_path, Rule("risk", 0.0, audit=1.0))
    assert rows == list(differences(own_pair(params), MATH))
    assert rows
    by_llm = [[token["by"] == "llm" for token in line["written"]] for line in lines]
    assert [sum(each) for each in by_llm] == [line["rejected"] for line in lines]


def audited(
    params: Params, bundle: Path, folder: Path, rule: Rule
) -> tuple[list[dict], list[dict]]:
    """The table of disagreements, and the answers."""
    source, output, table = folder / "q.jsonl", folder / "out.jsonl", folder / "found.parquet"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    generate(params, bundle, source, output, rule, table)
    assert table_metadata(table)["rule"] == str(rule)
    return read_table(table, DISAGREEMENT).to_pylist(), answers(output)


def differences(pair: Pair, questions: list[dict]) -> Iterator[dict]:
    """Along the LLM's own answers, a whole forward a token."""
    for question in questions:
        problem = parse_row(question, "math", need="question")
        ids = list(encode(problem, pair.tokenizer, pair.eos_id).prompt_ids)
        for position in range(MAX_NEW_TOKENS):
            theirs = next_logits(pair, pair.llm, ids)
            slm, llm = int(next_logits(pair, pair.slm, ids).argmax()), int(theirs.argmax())
            if slm != llm:
                yield {
                    "problem_id": problem.problem_id,
                    "position": position,
                    "slm_token": slm,
                    "llm_token": llm,
                    "slm_text": pair.tokenizer.decode([slm]),
                    "llm_text": pair.tokenizer.decode([llm]),
                    "odds": pytest.approx(float((theirs[slm] - theirs[llm]).exp()), rel=1e-3),
                    "rejected": True,
                }
            ids.append(llm)
            if llm in pair.eos_ids:
                break


def test_only_what_is_far_from_the_llms_choice_is_rolled_back(
    params: Params, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = Rule("every", 3, audit=0.05)
    rows, lines = audited(params, bundle, tmp_path, rule)
    assert {row["rejected"] for row in rows} == {True, False}
    assert all(row["rejected"] == (row["odds"] < rule.audit) for row in rows)
    rejected = sum(line["rejected"] for line in lines)
    assert rejected == sum(row["rejected"] for row in rows)
    text = " ".join(capsys.readouterr().out.split())
    said = re.search(r"of (\d+) audited tokens (\d+) agreed, (\d+) were rolled back", text)
    assert said
    seen, agreed, rolled_back = map(int, said.groups())
    assert (seen - agreed, rolled_back) == (len(rows), rejected)
    assert "by `every 3 audit 0.05`" in text


def test_disagreements_of_a_rule_without_audits_are_refused_before_anything_is_read(
    bundle: Path, params: Params, tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing.jsonl"
    with pytest.raises(InputError, match=r"--disagreements: `score 0\.5` audits nothing"):
        generate(params, bundle, nothing, nothing, disagreements=tmp_path / "found.parquet")


def test_a_bundle_without_a_rule_asks_for_one(params: Params, tmp_path: Path) -> None:
    write_bundle(
        tmp_path / "bare",
        Router({"stand": Head(None), "agree": Head(None)}),
        identity(own_pair(params)),
    )
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match=r"no rule in router\.json: give --rule"):
        generate(params, tmp_path / "bare", source, tmp_path / "out.jsonl")


def test_a_bad_row_leaves_no_output(params: Params, bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MATH[1]) + "\n" + json.dumps({"problem": 3}))
    with pytest.raises(InputError, match=r"q\.jsonl:2: problem: 3"):
        generate(params, bundle, source, output)
    assert not output.exists()


def test_answers_take_the_place_of_no_other_file(
    params: Params, bundle: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MATH[1]))
    rule = Rule("risk", 0.5, 0.1)
    for taken, table in ((source, None), (output, output), (output, source)):
        with pytest.raises(InputError, match="expected a file of its own"):
            generate(params, bundle, source, taken, rule, table)
    assert source.read_text() == json.dumps(MATH[1])
    assert not output.exists()


def test_an_slm_that_was_trained_since_is_refused_before_a_model_is_loaded(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.load_pair", None)
    weights = Path("data/models/slm/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match="made for the SLM data/models/slm"):
        generate(params, bundle, source, tmp_path / "out.jsonl")


LONG = {"problem": "Why? " * 400}


def test_a_question_without_room_for_its_answer_is_told_by_file_line_and_key(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n\n".join(json.dumps(row) for row in (*MATH, LONG)))
    monkeypatch.setattr("citer.generate.deploy", None)  # no model is loaded before
    with pytest.raises(InputError) as caught:
        generate(params, bundle, source, output)
    assert re.fullmatch(
        rf"{source}:7: \d+ tokens and up to 12 more \(evaluate\.max_new_tokens\), "
        "expected at most 1024, the models' context",
        str(caught.value),
    )
    assert not output.exists()


@pytest.mark.parametrize("option", ["output", "disagreements"])
def test_where_nothing_can_be_written_is_told_before_a_model_is_loaded(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[0]))
    monkeypatch.setattr("citer.generate.deploy", None)
    for place in (Path(""), tmp_path, Path("/proc/x"), source / "x"):
        targets = {"output": tmp_path / "out.jsonl", option: place}
        with pytest.raises(InputError, match=r"not a file|cannot be written"):
            generate(params, bundle, source, rule=Rule("risk", 0.5, audit=0.1), **targets)
    assert {path.name for path in tmp_path.iterdir()} == {"q.jsonl", "bundle", "data", "pair"}


def test_a_file_that_is_of_no_task_is_refused(params: Params, bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text('\n{"prompt": "2 + 2?"}')
    with pytest.raises(InputError) as caught:
        generate(params, bundle, source, tmp_path / "out.jsonl")
    expected = "expected `problem` (math) or `question` (multiple choice) in it"
    assert str(caught.value) == f"{source}:2: row: {{'prompt': '2 + 2?'}}; {expected}"


@pytest.fixture
def deployment(params: Params, bundle: Path) -> Deployment:
    return deploy(
        bundle,
        Path("data/models/slm"),
        Path(params.pair.llm),
        params.pair,
        RULE,
        slots=2,
        max_new_tokens=MAX_NEW_TOKENS,
    )


def asked(rows: list[dict]) -> list[Problem]:
    return [parse_row(row, "math", need="question") for row in rows]


def test_threads_that_ask_one_deployment_are_answered_one_after_the_other(
    deployment: Deployment,
) -> None:
    def completions(_: int) -> list[str]:
        return [reply.completion for reply in deployment.replies(asked(MATH))]

    alone = completions(0)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(completions, range(8))) == [alone] * 8


def test_replies_come_in_the_order_asked_and_are_counted_as_they_come(
    deployment: Deployment,
) -> None:
    counted: list[float] = []
    replies = list(deployment.replies(asked(MATH), counted.append))
    assert [reply.problem.question for reply in replies] == [row["problem"] for row in MATH]
    assert counted == [1, 1, 1]


def test_a_reply_is_there_before_all_questions_are_answered(deployment: Deployment) -> None:
    """What waits for an earlier one is at most what its slots' neighbours answer meanwhile."""
    counted: list[float] = []
    first = next(
        deployment.replies(asked([{"problem": f"{n} + 1?"} for n in range(40)]), counted.append)
    )
    assert first.problem.question == "0 + 1?"
    assert len(counted) <= MAX_NEW_TOKENS + 1


def test_a_call_that_was_killed_goes_on_after_its_last_whole_answer(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule("risk", 0.5, audit=0.5)
    rows, undisturbed = audited(params, bundle, tmp_path, rule)
    output = tmp_path / "out.jsonl"
    output.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("citer.generate._line", killed_at(3))
        with pytest.raises(KeyboardInterrupt):
            audited(params, bundle, tmp_path, rule)
    assert not output.exists()
    [partial] = tmp_path.glob(".out.jsonl.*.partial")
    with partial.open("a") as file:
        file.write('{"problem_id": "to')
    replied: list[Problem] = []
    with monkeypatch.context() as patch:
        patch.setattr(Deployment, "replies", noting(replied))
        assert audited(params, bundle, tmp_path, rule) == (rows, undisturbed)
    assert [problem.question for problem in replied] == [MATH[2]["problem"]]
    assert not partial.exists()


def test_a_call_that_was_killed_is_not_taken_up_by_another_rule(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    with monkeypatch.context() as patch:
        patch.setattr("citer.generate._line", killed_at(2))
        with pytest.raises(KeyboardInterrupt):
            generate(params, bundle, source, output, Rule("score", 0.0))
    generate(params, bundle, source, output, Rule("score", 1.0))
    assert all(line["llm_tokens"] == line["tokens"] for line in answers(output))
    assert list(tmp_path.glob(".*.partial")) == []


def test_two_calls_do_not_write_one_output(
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

    line = _line
    monkeypatch.setattr("citer.generate._line", meanwhile)
    generate(params, bundle, source, output, Rule("score", 0.0))
    assert len(taken_up) == 2 * len(MATH)
    assert len(answers(output)) == len(MATH)


def killed_at(number: int) -> Callable[..., dict]:
    """`_line`, but the process is killed as it comes to the answer of that number."""
    seen = 0

    def wrapper(*arguments: Any) -> dict:
        nonlocal seen
        seen += 1
        if seen == number:
            raise KeyboardInterrupt
        return line(*arguments)

    line = _line
    return wrapper


def noting(asked: list[Problem]) -> Callable[..., Iterator[Reply]]:
    """`Deployment.replies`, which adds what it is asked."""
    replies = Deployment.replies

    def wrapper(self: Deployment, problems: list[Problem], *rest: Any) -> Iterator[Reply]:
        asked.extend(problems)
        return replies(self, problems, *rest)

    return wrapper


def test_a_question_that_is_too_long_is_refused(deployment: Deployment) -> None:
    *short, long = asked([*MATH, LONG])
    for problem in short:
        deployment.check(problem)
    with pytest.raises(InputError, match=r"^question: \d+ tokens and up to 12 more"):
        deployment.check(long)
