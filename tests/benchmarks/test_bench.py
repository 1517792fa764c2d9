"""Which rows are measured on which pairs, and which packages the bench imports."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.bench import ROWS, chosen, run
from benchmarks.pairs import Subject
from citer.errors import InputError

PROJECT = Path(__file__).parents[2]
ABSENT = "{'prefect', 'mlflow', 'dvc', 'trl', 'deepspeed', 'datasets', 'math_verify', 'sklearn'}"


def test_rows_are_chosen_by_name_and_default_to_all() -> None:
    assert chosen("row", ["graphs", "alone"], [*ROWS]) == ["alone", "graphs"]
    assert chosen("row", [], [*ROWS]) == [*ROWS]


def test_an_unknown_row_or_pair_is_reported_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no row '10' here; expected alone, graphs"):
        run(["alone", "10"], [], None, Path("bench.json"))
    with pytest.raises(InputError, match=r"no pair 'tpu' here; expected cpu-bf16"):
        run([], ["tpu"], None, Path("bench.json"))


def test_rows_without_a_matching_pair_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bench: graphs: not measured on cpu-bf16"):
        run(["graphs"], ["cpu-bf16"], None, tmp_path / "bench.json")


def test_the_bench_imports_no_trainer_no_orchestrator_and_no_grader() -> None:
    code = f"import sys, benchmarks.bench; print(sorted({ABSENT} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["alone", "graphs"])
def test_a_row_measures_a_tiny_pair(
    name: str, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "ROUNDS", 1)
    monkeypatch.setattr(report, "SECONDS", 0.0)
    monkeypatch.chdir(PROJECT)
    measure, _ = ROWS[name]
    finding = measure(replace(subject, new_tokens=8))
    assert finding.row == name
    assert finding.value > 0
