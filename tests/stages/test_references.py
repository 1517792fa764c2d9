"""The stage `references`: who writes the reference of which question, and what is kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from citer.config.params import Params, SamplingParams
from citer.data.problems import read_problems
from citer.data.references import read_of
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.errors import InputError
from citer.evaluation.sweep import request
from citer.executors import tables as executor
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.pairs.budget import changed
from citer.stages import paths, references
from citer.storage.schema import SPLITS
from citer.storage.tables import PARTIAL, table_metadata, write_table
from tests.stages.asked import (
    LIMIT,
    STAMP,
    Change,
    Own,
    bare,
    by_llm,
    given,
    made,
    no_answer,
    no_reference,
    with_source,
    write_splits,
)
from tests.stages.conftest import run_killed
from tests.stages.sections import with_section
from tests.taught import problems

HOT = SamplingParams(temperature=1.0, top_k=20)


@pytest.mark.parametrize(("source", "against"), [("given", "answers"), ("auto", "auto")])
def test_given_references_are_copied_byte_by_byte(
    project: Params, source: str, against: str
) -> None:
    write_splits()
    references.run(with_source(project, source, against))
    for split in SPLITS:
        assert paths.referenced(split).read_bytes() == paths.problems(split).read_bytes()


def test_a_split_keeps_as_many_questions_as_params_say_whatever_the_others_are(
    project: Params,
) -> None:
    write_splits()
    few = changed(project, {"references.most": {"preference": 2, "test": 10**6}})
    references.run(few)
    kept = made("preference")
    assert len(kept) == 2
    assert [p for p in given("preference") if p in kept] == kept
    assert made("test") == given("test")
    write_splits(lambda p: p if p in kept or p.split != "preference" else no_reference(p))
    references.run(few)
    assert made("preference") == kept


def test_a_limit_of_questions_does_not_change_what_is_right(project: Params) -> None:
    """One question without an answer compares all with the LLM, also if it is left out."""
    few = changed(with_source(project, "auto", "auto"), {"references.most": {"test": 1}})
    for unanswered in ("test-mc-1", "test-math-0"):
        write_splits(lambda p, key=unanswered: no_answer(p) if p.problem_id == key else p)
        references.run(few)
        rows = [*made("validation"), *made("test")]
        assert {(p.answer, p.written_by) for p in rows} == {(None, "llm")}


def test_the_llms_right_answers_become_references(project: Params, own: dict[str, Own]) -> None:
    write_splits()
    references.run(with_source(project, "llm"))
    for split in ("sft", "preference"):
        expected = [by_llm(p, own) for p in given(split) if own[p.question].right]
        assert made(split) == expected
        assert 0 < len(expected) < len(given(split))
        assert table_metadata(paths.referenced(split)).items() >= STAMP.items()
    for split in ("validation", "test"):
        assert paths.referenced(split).read_bytes() == paths.problems(split).read_bytes()


@pytest.mark.parametrize("source", ["llm", "auto", "both"])
def test_without_an_answer_to_grade_against_every_finished_answer_is_kept(
    project: Params, own: dict[str, Own], source: str
) -> None:
    write_splits(bare)
    references.run(with_source(project, source, "llm"))
    assert made() == [by_llm(p, own) for p in given()]


def test_auto_asks_the_llm_only_where_no_reference_is_given(
    project: Params, own: dict[str, Own]
) -> None:
    write_splits(lambda p: no_reference(p) if p.choices else p)
    references.run(with_source(project, "auto"))
    assert made() == [
        by_llm(p, own) if p.choices else p
        for p in given()
        if not p.choices or own[p.question].right
    ]


def test_both_makes_two_rows_of_a_question(project: Params, own: dict[str, Own]) -> None:
    write_splits()
    references.run(with_source(project, "both"))
    expected = []
    for problem in given():
        expected.append(problem)
        if own[problem.question].right:
            second = by_llm(problem, own)
            expected.append(replace(second, problem_id=f"{problem.problem_id}.llm"))
    assert made() == expected
    assert len(expected) > len(given())


@pytest.mark.parametrize("source", ["llm", "auto", "both"])
def test_what_the_llm_has_written_already_is_kept_but_what_is_right_is_as_it_is_evaluated(
    project: Params, own: dict[str, Own], source: str
) -> None:
    write_splits(
        lambda p: replace(bare(p), reference="Mine.", written_by="llm") if p.choices else bare(p)
    )
    references.run(with_source(project, source, "llm"))
    for split in SPLITS:
        kept = split in ("sft", "preference")
        rows = [p if kept and p.choices else by_llm(p, own) for p in given(split)]
        assert made(split) == rows
        assert {p.reference == "Mine." for p in rows} == ({True, False} if kept else {False})


def test_equal_references_are_one_row(project: Params, own: dict[str, Own]) -> None:
    write_splits(lambda p: replace(p, reference=own[p.question].text))
    references.run(with_source(project, "both"))
    assert made() == given()


@pytest.mark.parametrize(
    ("change", "against"),
    [(no_answer, "auto"), (bare, "llm"), (lambda p: p, "llm")],
)
def test_against_the_llm_its_answers_are_what_is_right(
    project: Params, own: dict[str, Own], change: Change, against: str
) -> None:
    write_splits(change)
    references.run(with_source(project, "auto", against))
    for split in ("validation", "test"):
        assert made(split) == [replace(by_llm(p, own), answer=None) for p in given(split)]


def test_cut_off_answers_are_never_references(
    project: Params, own: dict[str, Own], capsys: pytest.CaptureFixture[str]
) -> None:
    limit = sorted(each.tokens for each in own.values())[6]
    write_splits(bare)
    references.run(with_source(project, "llm", "llm", limit=limit))
    for split in SPLITS:
        kept = [p.question for p in made(split)]
        assert kept == [p.question for p in given(split) if own[p.question].tokens <= limit]
        assert 0 < len(kept) < 12
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert sum(int(row[6]) for row in cells if row[0] == "test") == 12 - len(made("test"))


def test_the_table_counts_each_task(
    project: Params, own: dict[str, Own], capsys: pytest.CaptureFixture[str]
) -> None:
    write_splits(lambda p: p if p.split == "sft" else no_answer(p))
    references.run(with_source(project, "llm", "llm"))
    shown = capsys.readouterr().out
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if "│" in line]
    cells = {tuple(cell.strip() for cell in row) for row in rows}
    right = sum(own[p.question].right for p in problems(12) if not p.choices)
    assert ("sft", "math", "0", str(right), f"{right} of 6", str(6 - right), "0") in cells
    assert ("test", "mc", "0", "6", "-", "0", "0") in cells
    assert "other tokens" not in shown


def test_a_split_without_a_question_is_refused_and_the_old_references_stay(
    project: Params,
) -> None:
    write_splits()
    references.run(with_source(project, "given"))
    before = paths.referenced("sft").read_bytes()
    with pytest.raises(InputError, match=r"^references: nothing left of sft, preference: "):
        references.run(with_source(project, "llm", limit=2))
    assert paths.referenced("sft").read_bytes() == before


@pytest.mark.parametrize(
    ("split", "lacks", "change", "setting"),
    [
        ("sft", "reference", no_reference, "references.source"),
        ("test", "answer", no_answer, "evaluate.against"),
    ],
)
def test_a_row_without_what_the_llm_is_not_to_give_is_refused(
    project: Params, split: str, lacks: str, change: Change, setting: str
) -> None:
    """As after a change of params.yaml without `citer prepare`."""
    write_splits(lambda p: change(p) if p.split == split else p)
    place = rf"^data/problems/{split}\.parquet: problem {split}-math-0: "
    with pytest.raises(InputError, match=rf"{place}no {lacks}; expected one, or {setting}: llm"):
        references.run(with_source(project, "given", "answers"))
    assert not paths.referenced("sft").exists()


@pytest.mark.parametrize(("split", "against"), [("sft", "answers"), ("test", "llm")])
def test_a_question_without_room_is_refused_before_a_model_is_loaded(
    project: Params, monkeypatch: pytest.MonkeyPatch, split: str, against: str
) -> None:
    write_splits(lambda p: replace(p, question="7 " * 1200) if p.split == split else p)
    monkeypatch.setattr("citer.models.outlined.open_pair", None)
    place = rf"^data/problems/{split}\.parquet: problem {split}-math-0: "
    with pytest.raises(InputError, match=rf"{place}.* \(decode\.max_new_tokens\)"):
        references.run(with_source(project, "llm", against))


def test_without_finetuning_the_llm_writes_no_reference_of_sft(project: Params) -> None:
    write_splits(bare)
    references.run(with_section(with_source(project, "auto", "auto"), "finetune", epochs=0))
    sft, preference = (read_problems(paths.referenced(split)) for split in SPLITS[:2])
    assert {problem.reference for problem in sft} == {None}
    assert None not in {problem.reference for problem in preference}


def test_references_that_the_setting_ignores_are_left_out() -> None:
    own, written = problems(2)
    rows = [own, replace(written, written_by="llm")]
    assert read_of(rows, "auto") == rows
    assert [row.reference for row in read_of(rows, "llm")] == [None, written.reference]


@pytest.mark.slow
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
    run_killed(params, "references", module="citer.executors.tables", function="write_table")
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


def test_against_the_llm_the_reference_is_what_the_evaluation_samples(
    project: Params, taught_pair: Pair
) -> None:
    write_splits(no_answer)
    params = with_source(project, "auto", "llm")
    references.run(with_section(params, "evaluate", sampling=HOT))
    engine, sampler = Engine(taught_pair, 1, LIMIT), Sampler(HOT, params.seed)
    expected = {}
    for problem in given("test"):
        (answer,) = engine.decode([request(problem, taught_pair, sampler)], LLM_ALONE)
        if not answer.truncated:
            expected[problem.problem_id] = taught_pair.text(answer.token_ids)
    assert {p.problem_id: p.reference for p in made("test")} == expected
    assert expected
