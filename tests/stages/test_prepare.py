import json
import shutil
from pathlib import Path

import pytest

from citer.config.params import Params, load_params
from citer.config.sources import SourceFile, ToyParams
from citer.data.problems import question_key, read_problems
from citer.data.tasks.grading import grade
from citer.errors import InputError
from citer.stages import paths, prepare
from citer.storage.schema import SPLITS
from citer.storage.tables import table_metadata
from tests.stages.sections import with_section

SHIPPED = load_params(Path(__file__).parents[2] / "citer/config/params.yaml")
TOY = ToyParams(tasks=("math", "mc"), sft=30, preference=10, validation=5, test=15)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data/own").mkdir(parents=True)


def params(seed: int = 17, **changes) -> Params:
    changed = with_section(SHIPPED, "prepare", **({"toy": None} | changes))
    return changed.model_copy(update={"seed": seed})


def with_settings(params: Params, source: str, against: str) -> Params:
    """Set `references.source` and `evaluate.against`."""
    params = with_section(params, "references", source=source)
    return with_section(params, "evaluate", against=against)


def strict(params: Params) -> Params:
    """Require references and answers in every row."""
    return with_settings(params, "given", "answers")


def math_file(name, questions, **fields):
    rows = [{"problem": q, "solution": "It is \\boxed{4}."} | fields for q in questions]
    path = Path("data/own") / name
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return SourceFile(path=path.as_posix(), task="math")


def numbered(count, start=0):
    return [f"Question {n}?" for n in range(start, start + count)]


def prepared():
    return {split: read_problems(paths.problems(split)) for split in SPLITS}


def questions(split):
    return [problem.question for problem in prepared()[split]]


def test_embedded_tasks_fill_every_split_with_right_references_and_no_question_is_in_two():
    prepare.run(params(toy=TOY))
    splits = prepared()
    for split, problems in splits.items():
        for task in TOY.tasks:
            assert sum(p.task == task for p in problems) == getattr(TOY, split)
        assert all(p.split == split and grade(p, p.reference) for p in problems)
    keys = [question_key(p.question) for problems in splits.values() for p in problems]
    assert len(set(keys)) == len(keys) == 120


def test_same_seed_gives_same_bytes_and_another_seed_other_questions():
    def run(seed):
        prepare.run(params(toy=TOY, train=(math_file("a.json", numbered(40)),), seed=seed))
        return [paths.problems(split).read_bytes() for split in SPLITS]

    assert run(1) == run(1) != run(2)


def test_more_training_questions_do_not_change_the_test_questions():
    prepare.run(params(toy=TOY))
    before = questions("test"), questions("validation")
    prepare.run(params(toy=TOY.model_copy(update={"sft": 60})))
    assert (questions("test"), questions("validation")) == before


def test_metadata_has_template_seed_and_sources():
    prepare.run(params(toy=TOY, test=(math_file("own.jsonl", numbered(7)),)))
    metadata = table_metadata(paths.problems("test"))
    assert metadata["tasks"] == ["math", "mc"]
    assert metadata["seed"] == 17
    assert metadata["sources"] == {"own.jsonl": 7, "toy": 30}


def test_added_rows_do_not_move_other_rows():
    prepare.run(params(train=(math_file("a.json", numbered(60)),)))
    before = prepared()
    prepare.run(params(train=(math_file("a.json", numbered(200)),)))
    after = prepared()
    for split in SPLITS:
        assert {*before[split]} == {p for p in after[split] if p.question in numbered(60)}


def test_own_files_are_kept_whole_and_their_questions_leave_the_training_splits(capsys):
    own = numbered(30)
    prepare.run(
        params(
            train=(math_file("train.json", [q.upper() for q in own] + numbered(170, start=30)),),
            test=(math_file("test.json", own[:20], solution=None, answer="4"),),
            validation=(math_file("validation.json", own[20:]),),
        )
    )
    assert questions("test") == own[:20]
    assert questions("validation") == own[20:]
    assert sorted(questions("sft") + questions("preference")) == sorted(numbered(170, start=30))
    said = "train.json: 30 duplicates left out; of equal questions the first one stays"
    assert said in capsys.readouterr().out


def test_a_missing_source_is_found_before_any_row_is_read():
    own, bad = math_file("train.json", numbered(20)), math_file("bad.json", [7])
    gone = SourceFile(path="data/own/gone.json", task="math")
    with pytest.raises(InputError, match=r"^data/own/gone\.json: no such file$"):
        prepare.run(params(train=(bad, own), validation=(gone,)))


def test_duplicates_with_another_answer_are_counted(capsys):
    other = {"solution": "It is \\boxed{5}."}
    again = math_file("again.json", numbered(20)), math_file("other.json", numbered(3), **other)
    prepare.run(params(train=(math_file("train.json", numbered(200)), *again)))
    said = " ".join(capsys.readouterr().out.split())
    assert "again.json: 20 duplicates left out; of equal" in said
    assert "other.json: 3 duplicates left out, 3 of them with another answer; of equal" in said


def test_a_test_question_leaves_the_users_own_validation_file_too():
    own = math_file("own.json", numbered(9))
    more = math_file("more.json", numbered(20))
    prepare.run(params(train=(math_file("t", numbered(99, 99)),), test=(own,), validation=(more,)))
    assert questions("test") == numbered(9)
    assert questions("validation") == numbered(11, start=9)


def test_a_test_file_replaces_the_share_of_test():
    rows = math_file("train.json", numbered(2000))
    prepare.run(params(train=(rows,), test=(math_file("own.json", numbered(5, 9000)),)))
    sizes = {split: len(problems) for split, problems in prepared().items()}
    assert sizes["test"] == 5
    assert sum(sizes.values()) == 2005
    for split, share in (("sft", 6 / 9), ("preference", 2 / 9), ("validation", 1 / 9)):
        assert abs(sizes[split] / 2000 - share) < 0.04  # four standard errors


def test_a_bad_row_raises_with_file_and_line_and_keeps_the_old_tables():
    prepare.run(params(toy=TOY))
    before = prepared()
    bad = math_file("bad.json", ["Q?"], solution="no box")
    with pytest.raises(InputError, match=r"^data/own/bad\.json:1: solution: no complete"):
        prepare.run(params(toy=TOY, train=(bad,)))
    assert prepared() == before
    assert {path.name for path in Path("data").iterdir()} == {"own", "problems"}


def test_skipped_rows_are_counted_by_kind_with_the_first_of_each(capsys):
    train = math_file("train.json", numbered(100))
    boxless = math_file("boxless.json", numbered(3, 500), solution="no box")
    missing = math_file("missing.json", numbered(2, 600), solution=None)
    prepare.run(strict(params(train=(train, boxless, missing), on_bad_row="skip")))
    assert sum(len(problems) for problems in prepared().values()) == 100
    printed = capsys.readouterr().out
    assert "3 rows skipped like data/own/boxless.json:1: solution: no complete \\boxed{}" in printed
    assert "2 rows skipped like data/own/missing.json:1: solution: missing; expected a" in printed


def test_skipped_rows_are_reported_before_an_empty_split(capsys):
    bad = math_file("bad.json", numbered(3), solution="no box")
    with pytest.raises(InputError, match=r"^prepare: no problem in sft, .*; expected .*$"):
        prepare.run(params(train=(bad,), on_bad_row="skip"))
    assert "3 rows skipped like data/own/bad.json:1: solution: no" in capsys.readouterr().out
    assert not paths.PROBLEMS.exists()


def promise_warnings(capsys, questions):
    """Return the warnings for a number of validation questions, at ε = δ = .05 and three lines."""
    prepare.run(params(toy=TOY.model_copy(update={"tasks": ("math",), "validation": questions})))
    return [line for line in capsys.readouterr().out.splitlines() if "certif" in line]


def test_too_few_validation_questions_print_a_warning(capsys):
    """n questions without an error bound a share by 1 - (0.8 δ)^(1/n), below ε from n = 63 on."""
    assert 0.04 ** (1 / 62) < 0.95 < 0.04 ** (1 / 63)
    assert promise_warnings(capsys, 62) == [
        "validation: there are 62 questions, too few to certify a rule that may change an answer: "
        "evaluate.epsilon 0.05 needs 63"
    ]
    assert promise_warnings(capsys, 63) == []


def test_all_real_rows_are_imported(real_rows, capsys):
    train, rows = [], 0
    for name, task in (("gsm8k.jsonl", "math"), ("commonsenseqa.jsonl", "mc")):
        shutil.copy(real_rows / name, "data/own")
        rows += len(Path(real_rows / name).read_text(encoding="utf-8").splitlines())
        train.append(SourceFile(path=f"data/own/{name}", task=task))
    prepare.run(params(train=tuple(train), on_bad_row="skip"))
    splits = prepared()
    printed = capsys.readouterr().out
    skipped = printed.count("the answer is not ")  # one published row contradicts its own answer
    assert sum(len(problems) for problems in splits.values()) == rows - skipped
    assert skipped <= 1
    assert ("skipped" in printed) == bool(skipped)
    assert "duplicates" not in printed
    keys = [{question_key(p.question) for p in problems} for problems in splits.values()]
    assert len(set.union(*keys)) == sum(map(len, keys))
