"""`prepare` makes questions for training of the folder of a server's log."""

import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from citer.config.params import Params
from citer.config.sources import ShareParams, SourceFile, ToyParams, TrafficFolder
from citer.data.problems import Problem, read_problems
from citer.data.references import against_llm, asked
from citer.errors import InputError
from citer.stages import paths, prepare
from citer.storage.schema import SPLITS
from citer.storage.tables import write_table, write_text
from tests.served import served, write_served
from tests.stages.sections import with_section
from tests.stages.test_prepare import SHIPPED

TOY = ToyParams(tasks=("math",), sft=3, preference=3, validation=3, test=3)
LOG = "data/own/log"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(LOG).mkdir(parents=True)


def params(most: int = 1000, **changes: object) -> Params:
    folder = TrafficFolder(path=LOG, most=most)
    settings = {"toy": TOY, "traffic": (folder,), **changes}
    return with_section(SHIPPED, "prepare", **settings)


def log(name: str, *questions: str) -> None:
    write_served(f"{LOG}/{name}.parquet", [served(question) for question in questions])


def prepared(chosen: Params) -> dict[str, list[Problem]]:
    """Run `prepare`; return the problems of each split that come from traffic."""
    prepare.run(chosen)
    splits = {split: read_problems(paths.problems(split)) for split in SPLITS}
    return {name: [p for p in found if p.source == "traffic"] for name, found in splits.items()}


def questions(splits: dict[str, list[Problem]]) -> list[str]:
    return sorted(problem.question for found in splits.values() for problem in found)


MANY = [f"Question {number}?" for number in range(60)]


def test_bare_questions_go_to_the_training_splits_by_their_shares() -> None:
    log("a", *MANY)
    found = prepared(params())
    assert {split: len(found[split]) for split in SPLITS[2:]} == {"validation": 0, "test": 0}
    assert len(found["sft"]) > len(found["preference"]) > 0
    assert questions(found) == sorted(MANY)
    for problem in [*found["sft"], *found["preference"]]:
        assert (problem.reference, problem.answer) == (None, None)


def test_a_logged_answer_of_the_llm_is_a_reference_that_it_need_not_write_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [served(question, reference=f"{question} So 4.") for question in MANY[::2]]
    write_served(f"{LOG}/a.parquet", [*rows, *map(served, MANY), served("", reference="")])
    found = prepared(params())
    learned = [*found["sft"], *found["preference"]]
    known = {problem.question: problem for problem in learned if problem.reference}
    assert sorted(known) == sorted(MANY[::2])
    for question, problem in known.items():
        assert problem.reference == f"{question} So 4."
        assert (problem.written_by, problem.answer, problem.source) == ("llm", None, "traffic")
    said = "61 questions in 91 answers, 30 with the LLM's own answer"
    assert said in " ".join(capsys.readouterr().out.split())
    for source in ("auto", "llm", "both"):
        assert {p.question for p in asked(learned, source)} == {"", *MANY[1::2]}


def test_a_test_question_does_not_come_back_under_a_system_message() -> None:
    Path("data/own/test.jsonl").write_text('{"problem": "Question 1?", "answer": "4"}\n')
    file = SourceFile(path="data/own/test.jsonl", task="math")
    turns = {"messages": [{"role": "system", "content": "Be brief."}], "problem_id": "other"}
    write_served(f"{LOG}/a.parquet", [served("Question 1?", **turns), served("Why?")])
    assert questions(prepared(params(test=(file,)))) == ["Why?"]


def test_the_reference_of_a_question_does_not_depend_on_the_files() -> None:
    spelled = [served("why?", reference="b"), served("Why?", reference="a"), served("WHY?")]
    for order in (spelled, spelled[::-1]):
        for name, row in zip("abc", order, strict=True):
            write_served(f"{LOG}/{name}.parquet", [row])
        [problem] = (p for found in prepared(params()).values() for p in found)
        assert (problem.question, problem.reference) == ("why?", "b")


def test_given_answers_stay_the_measure_and_the_llm_writes_the_references() -> None:
    """`references.source` and `evaluate.against` are auto."""
    log("a", *MANY)
    prepare.run(params())
    splits = {split: read_problems(paths.problems(split)) for split in SPLITS}
    assert not against_llm("auto", [*splits["validation"], *splits["test"]])
    assert {p.source for p in asked(splits["sft"], "auto")} == {"traffic"}


def test_fidelity_is_measured_on_traffic_too() -> None:
    log("a", *MANY)
    found = prepared(with_section(params(), "evaluate", against="llm"))
    assert all(found[split] for split in SPLITS)
    assert questions(found) == sorted(MANY)


def test_a_split_with_a_file_of_its_own_gets_its_share_of_traffic() -> None:
    log("a", *MANY)
    write_text(Path("data/own/test.jsonl"), '{"problem": "Is it?"}\n')
    own = (SourceFile(path="data/own/test.jsonl", task="math"),)
    by_llm = with_section(params(test=own), "evaluate", against="llm")
    assert all(prepared(by_llm)[split] for split in SPLITS)
    shares = ShareParams(sft=0.5, preference=0.4, validation=0.1, test=0)
    none = with_section(by_llm, "prepare", shares=shares)
    assert [split for split, found in prepared(none).items() if not found] == ["test"]


def test_a_question_with_a_right_answer_goes_to_all_splits_and_keeps_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The LLM's own answer may be wrong: the stage `references` asks it again, and grades it."""
    rows = [served(question, answer="4", reference="5") for question in MANY]
    write_served(f"{LOG}/a.parquet", [*rows, *(served(question.upper()) for question in MANY)])
    found = prepared(params())
    assert all(found[split] for split in SPLITS)
    known = {(p.answer, p.reference, p.written_by) for each in found.values() for p in each}
    assert known == {("4", None, None)}
    assert questions(found) == sorted(MANY)
    said = "60 questions in 120 answers, 60 with a right answer"
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_question_with_other_options_is_another() -> None:
    rows = [
        served("Which?", choices=[{"label": "A", "text": text}], problem_id=text)
        for text in ("yes", "no", "no")
    ]
    write_served(f"{LOG}/a.parquet", rows)
    assert questions(prepared(params())) == ["Which?", "Which?"]


def test_the_sample_depends_on_the_seed_but_not_on_the_files() -> None:
    log("a", *MANY)
    first = prepared(params(most=20))
    assert len(questions(first)) == 20
    Path(LOG, "a.parquet").unlink()
    log("b", *map(str.upper, MANY))
    log("c", *reversed(MANY[30:]))
    log("a", *MANY[:30])
    again = prepared(params(most=20))
    assert [q.lower() for q in questions(again)] == [q.lower() for q in questions(first)]
    other = prepared(params(most=20).model_copy(update={"seed": 18}))
    assert questions(other) != questions(again)


def test_a_question_of_test_or_validation_never_trains(capsys: pytest.CaptureFixture[str]) -> None:
    prepare.run(params())
    kept = {split: paths.problems(split).read_bytes() for split in SPLITS[2:]}
    judged = [p.question for split in kept for p in read_problems(paths.problems(split))]
    log("a", *judged, "Why?")
    assert questions(prepared(params())) == ["Why?"]
    assert {split: paths.problems(split).read_bytes() for split in kept} == kept
    assert "traffic: 6 duplicates left out" in " ".join(capsys.readouterr().out.split())


def test_a_new_folder_is_empty_and_a_missing_one_is_refused() -> None:
    Path(LOG, ".c.jsonl").write_text("{}\n")  # of a server that runs
    assert questions(prepared(params())) == []
    Path(LOG, ".c.jsonl").unlink()
    Path(LOG).rmdir()
    with pytest.raises(InputError, match=rf"^{LOG}: expected a folder of `citer serve --log`$"):
        prepare.run(params())


def test_traffic_needs_references_by_the_llm() -> None:
    with pytest.raises(InputError, match=r"^references.source: given: expected auto, llm or both"):
        prepare.run(with_section(params(), "references", source="given"))


def test_traffic_needs_a_share_of_a_training_split() -> None:
    nothing = {"sft": 0.0, "preference": 0.0, "validation": 0.5, "test": 0.5}
    shares = SHIPPED.prepare.shares.model_copy(update=nothing)
    with pytest.raises(InputError, match=r"^prepare.shares: no split of prepare.traffic has"):
        prepare.run(params(shares=shares))


def test_a_task_without_other_rows_is_refused_with_its_row() -> None:
    write_served(f"{LOG}/a.parquet", [served("Why?"), served("Which?", task="mc")])
    with pytest.raises(
        InputError, match=rf"^{LOG}/a.parquet: row 2: task 'mc': expected math, the tasks of the "
    ):
        prepare.run(params())
    assert not paths.PROBLEMS.exists()


def test_other_tables_are_refused_in_one_line() -> None:
    path = Path(LOG, "a.parquet")
    other = pa.table({"problem_id": ["a"], "position": pa.array([3], pa.int32())})
    write_table(path, other, other.schema, {})
    with pytest.raises(InputError) as caught:
        prepare.run(params())
    assert re.fullmatch(
        rf"{path}: columns are \['problem_id', 'position'\], expected \['problem_id', .*\] "
        r"\(a table of `citer serve --log`\)",
        str(caught.value),
    )
    pd.DataFrame([served("Why?")]).to_parquet(path)
    with pytest.raises(InputError, match=rf"^{path}: not a table that citer wrote \(a table of"):
        prepare.run(params())
