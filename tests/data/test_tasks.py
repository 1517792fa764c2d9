"""Another task works once it is in the table, and no other module names a task."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from citer.config.params import Params, load_params
from citer.data.importing import parse_row, recognised
from citer.data.problems import Problem, read_problems
from citer.data.prompts import PlainPrompts, PromptSettings
from citer.data.tasks import TASKS
from citer.data.tasks.grading import grade
from citer.data.tasks.own import FORM
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, always_slm
from citer.errors import InputError
from citer.evaluation.cost import batches
from citer.evaluation.points import outcome_table, point_rows
from citer.evaluation.sweep import Line, request, sweep
from citer.executors.base import InLine
from citer.models.pair import Pair
from citer.pairs.hints import shortfalls
from citer.rule import LLM, SLM
from citer.stages import paths, prepare
from citer.storage.code import STAGES, imported
from citer.storage.schema import SPLITS
from tests.spelling import ROWS, Spelling
from tests.tiny import MATH

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "citer/config/params.yaml"
NAMES = "'math', 'mc', 'number', 'exact', 'contains', 'json', 'open'"


@pytest.fixture
def spelling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(TASKS, "spelling", Spelling())
    monkeypatch.chdir(tmp_path)


def shipped_with(old: str = "", new: str = "") -> Params:
    """Load the shipped parameters with one text replaced."""
    shipped = SHIPPED.read_text()
    assert old in shipped
    Path("params.yaml").write_text(shipped.replace(old, new, 1))
    return load_params()


def without_toy(params: Params) -> Params:
    return params.model_copy(update={"prepare": params.prepare.model_copy(update={"toy": None})})


@pytest.fixture
def prepared(spelling: None) -> dict[str, list[Problem]]:
    """Write a file of the third task, prepare it, and return the problems of each split."""
    Path("data/own").mkdir(parents=True)
    Path("data/own/e.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    prepare.run(
        without_toy(shipped_with("train: []", "train: [{path: data/own/e.jsonl, task: spelling}]"))
    )
    return {split: read_problems(paths.problems(split)) for split in SPLITS}


def test_rows_of_a_third_task_become_problems_in_every_split(
    prepared: dict[str, list[Problem]],
) -> None:
    problems = [problem for split in prepared.values() for problem in split]
    assert len(problems) == len(ROWS)
    assert {p.task for p in problems} == {"spelling"}
    assert all(problem.answer == problem.reference for problem in problems)
    assert all(prepared.values())


def test_a_third_tasks_rows_are_recognised_and_their_errors_name_its_fields(spelling: None) -> None:
    assert [recognised(row, [*TASKS]).task for row in (ROWS[0], {"problem": "2?"})] == [
        "spelling",
        "math",
    ]
    expected = r"`question` \(mc\) or `prompt` \(spelling\), or a `task`"
    with pytest.raises(InputError, match=expected):
        recognised({}, [*TASKS])
    with pytest.raises(InputError, match="expected: missing; expected the whole answer"):
        parse_row({"prompt": "Spell 1."}, "spelling", "answer")


def prompts(pair: Pair) -> PlainPrompts:
    return PlainPrompts(PromptSettings(tasks=["spelling", "math"]), pair.tokenizer, pair.eos_ids)


def test_a_third_tasks_prompt_is_encoded_and_its_completions_graded(
    spelling: None, pair: Pair
) -> None:
    problem = parse_row(ROWS[7], "spelling", "reference")
    encoded = prompts(pair).encode(problem)
    assert pair.tokenizer.decode(encoded.prompt_ids) == "Say exactly: Spell 7.\n"
    assert pair.tokenizer.decode(encoded.reference_ids[:-1]) == "7 7"
    assert [grade(problem, text) for text in ("7 7\n", "7 8")] == [True, False]


def test_a_third_task_is_decoded_and_graded_and_has_its_own_rows_in_the_reports(
    prepared: dict[str, list[Problem]], pair: Pair, tmp_path: Path
) -> None:
    pair = replace(pair, prompts=prompts(pair))
    engine, problems = Engine(pair, 4, 64), [*prepared["test"][:3], MATH]
    [written] = engine.decode([request(problems[0], pair)], LLM_ALONE)
    assert not written.truncated
    problems[0] = replace(problems[0], answer=pair.text(written.token_ids).strip())

    lines = [Line("llm", always_slm, [SLM, LLM])]
    [[slm, llm]] = sweep(InLine(), engine, problems, lines, tmp_path)

    assert [result.correct for result in llm.results] == [True, False, False, False]
    assert set(outcome_table([slm, llm])["task"].to_pylist()) == {"spelling", "math"}
    points = point_rows([llm], batches([1]))
    accuracy = {point["task"]: point["accuracy"] for point in points}
    assert accuracy == {"all": 1 / 4, "spelling": 1 / 3, "math": 0}
    assert {missed.task: missed.questions for missed in shortfalls(llm.results, 1.0)} == {
        "spelling": 3,
        "math": 1,
    }


def test_params_accept_only_tasks_of_the_table(spelling: None) -> None:
    with pytest.raises(InputError) as caught:
        shipped_with("train: []", "train: [{path: data/own/a.json, task: art}]")
    expected = f"expected {NAMES}, 'spelling' or {FORM}"
    assert str(caught.value) == f"params.yaml: prepare.train.0.task: 'art': {expected}"


def test_a_task_without_generated_rows_cannot_be_an_embedded_one(spelling: None) -> None:
    with pytest.raises(InputError) as caught:
        shipped_with("tasks: [math, mc]", "tasks: [math, spelling]")
    assert "prepare.toy.tasks.1: 'spelling': expected 'math' or 'mc'" in str(caught.value)


def named_tasks(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return texts & {"math", "mc", "contains"}


def test_no_other_module_names_a_task() -> None:
    homes = [ROOT / "citer" / place for place in ("data/tasks", "demo")]
    files = [file for top in ("citer", "flows") for file in (ROOT / top).rglob("*.py")]
    outside = [file for file in files if not any(file.is_relative_to(home) for home in homes)]
    assert len(outside) > 50
    assert any(named_tasks(file) for file in files)
    assert [file for file in outside if named_tasks(file)] == []


@pytest.mark.parametrize("stage", ["prepare", "score_slm", "evaluate"])
def test_a_code_digest_covers_every_task(stage: str) -> None:
    home = Path("citer/data/tasks")
    every = {home / file.name for file in (ROOT / home).glob("*.py")}
    assert len(every) > 10
    assert every - {home / "grading.py"} <= set(imported(STAGES / f"{stage}.py"))
