"""A grader that fails is counted and named by every stage that grades."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from citer.config.params import Params, load_params
from citer.config.sources import SourceFile
from citer.data.problems import Problem, read_problems
from citer.data.prompts import PlainPrompts, PromptSettings
from citer.data.tasks import TASKS, task_label
from citer.data.tasks.grading import WRONG
from citer.data.tasks.math import Math
from citer.data.tasks.own import own_task
from citer.data.tasks.task import GraderError
from citer.decoding.engine import Engine
from citer.decoding.policy import always_slm
from citer.errors import InputError
from citer.evaluation.sweep import Line, sweep
from citer.executors.base import InLine
from citer.models.pair import Pair
from citer.rule import LLM
from citer.stages import label, paths, prepare
from citer.storage.schema import PREFERENCE, SPLITS
from citer.storage.tables import read_json, read_table, table_metadata
from tests.spelling import ROWS, Spelling
from tests.stages.conftest import run_all
from tests.stages.sections import with_section

ROOT = Path(__file__).parents[2]
TIMEOUT = "timeout after 5 s"


def fail(*_: object) -> bool:
    raise GraderError(TIMEOUT)


def test_a_sweep_keeps_why_a_grader_failed(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "spelling", Spelling())
    monkeypatch.setattr(Spelling, "grade", fail)
    problem = Spelling().problem(ROWS[7], "")
    prompts = PlainPrompts(PromptSettings(tasks=["spelling"]), pair.tokenizer, pair.eos_ids)
    pair = replace(pair, prompts=prompts)
    lines = [Line("llm", always_slm, [LLM])]
    [[run]] = sweep(InLine(), Engine(pair, 4, 64), [problem], lines, tmp_path)
    [result] = run.results
    assert not result.truncated
    assert (result.correct, result.share, result.failure) == (False, None, TIMEOUT)


def test_failures_of_rollouts_are_in_the_labels_and_their_metadata(
    scored: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Math, "grade", fail)
    label.run(scored, 1)
    failed = [
        row["problem_id"]
        for row in read_table(paths.preferences(1), PREFERENCE).to_pylist()
        if row["failure"] == TIMEOUT
    ]
    assert failed
    assert {key.partition("-")[0] for key in failed} == {"math"}
    assert table_metadata(paths.preferences(1))["failed_grades"] == {"math": len(failed)}
    said = f"the grader of math failed on {len(failed)} answers, which count as wrong"
    assert f"{said}; on problem {failed[0]}: `{TIMEOUT}`" in capsys.readouterr().out


def test_reports_name_the_failures(
    params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("citer.evaluation.sweep.WRONG", WRONG._replace(failure=TIMEOUT))
    run_all(params)
    counts = read_json(paths.SUMMARY / "metrics.json")["failed_grades"]
    assert counts.keys() == {"math", "mc"}
    said = f"the grader of math failed on {counts['math']:,} answers, which count as wrong"
    assert said in (paths.SUMMARY / "table.md").read_text()
    assert capsys.readouterr().out.count("the grader of math failed on ") == 4


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a project with the worked example, and return its file."""
    monkeypatch.chdir(tmp_path)
    own_task.cache_clear()
    folder = Path("data/own")
    folder.mkdir(parents=True)
    file = folder / "functions.py"
    file.write_text((ROOT / "docs/examples/functions.py").read_text())
    [row] = json.loads(f"[{(ROOT / 'docs/examples/functions.jsonl').read_text().splitlines()[0]}]")
    rows = [row | {"text": f"{row['text']} ({n})"} for n in range(30)]
    (folder / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return file


def prepared(*tasks: str) -> list[Problem]:
    shipped = load_params(ROOT / "citer/config/params.yaml")
    files = tuple(SourceFile(path="data/own/f.jsonl", task=task) for task in tasks)
    prepare.run(with_section(shipped, "prepare", toy=None, train=files))
    return [problem for split in SPLITS for problem in read_problems(paths.problems(split))]


def test_the_digest_of_a_users_task_is_in_the_problem_tables(own_file: Path) -> None:
    task = f"python:{own_file}:Functions"
    assert {task_label(problem.task) for problem in prepared(task)} == {"Functions"}
    tables = [paths.problems(split) for split in SPLITS]
    before, stamps = [path.read_bytes() for path in tables], table_metadata(tables[0])["own_tasks"]
    assert prepared(task)
    assert [path.read_bytes() for path in tables] == before
    own_file.write_text(f"{own_file.read_text()}\n# another comment\n")
    own_task.cache_clear()
    assert prepared(task)
    assert stamps != table_metadata(tables[0])["own_tasks"]
    assert all(path.read_bytes() != old for path, old in zip(tables, before, strict=True))


def test_two_tasks_that_reports_would_show_alike_are_refused(own_file: Path) -> None:
    other = own_file.with_name("other.py")
    other.write_text(own_file.read_text())
    with pytest.raises(InputError, match=r"^prepare: tasks .*: expected two different names$"):
        prepared(f"python:{own_file}:Functions", f"python:{other}:Functions")


def test_a_task_that_cannot_be_imported_is_refused_before_a_row_is_read(own_file: Path) -> None:
    Path("data/own/f.jsonl").write_text("{")
    own_file.write_text("import no_such_module")
    with pytest.raises(InputError, match=r"^data/own/functions\.py:1: ModuleNotFoundError: "):
        prepared(f"python:{own_file}:Functions")
