"""Progress bars and throughput, on terminals and in logs."""

from types import SimpleNamespace

import pytest

from citer.errors import InputError
from citer.progress import _Throughput, progress


@pytest.mark.parametrize(
    ("completed", "before", "elapsed", "finished", "shown"),
    [
        (0, 0, None, None, "0 rows/s"),
        (0, 0, 3.0, None, "0 rows/s"),
        (1, 0, 4.0, None, "0.25 rows/s"),
        (2, 0, 0.5, 0.5, "4 rows/s"),
        (90, 0, 60.0, 6.0, "15 rows/s"),
        (90_000, 0, 30.0, None, "3,000 rows/s"),
        (150, 150, 3.0, None, "0 rows/s"),
        (153, 150, 3.0, None, "1 rows/s"),
    ],
)
def test_throughput_is_that_of_this_run_since_its_start(
    completed: int, before: int, elapsed: float | None, finished: float | None, shown: str
) -> None:
    task = SimpleNamespace(
        completed=completed,
        elapsed=elapsed,
        finished_time=finished,
        fields={"unit": "rows", "before": before},
    )
    assert str(_Throughput().render(task)) == shown


def test_units_of_earlier_runs_count_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("finetune", 230, "steps", before=150) as advance:
        advance(1)
    assert "151/230" in capsys.readouterr().err


def test_a_log_has_room_for_a_long_title(capsys: pytest.CaptureFixture[str]) -> None:
    title = "slm, llm, entropy, random, speculative on test"
    with progress(title, 12_000, "answers") as advance:
        advance(12_000)
    (line,) = capsys.readouterr().err.splitlines()
    assert title in line
    assert "12000/12000" in line
    assert "answers/s" in line


def test_a_log_shows_how_the_work_proceeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr("citer.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress("label", 8, "rows", before=2) as advance:
        for _ in range(6):
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["5/8", "8/8"]


def test_a_bar_stays_when_the_work_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 1, "rows") as advance:
        advance(1)
    assert "1/1" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_bad_input_leaves_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    with pytest.raises(InputError), progress("reading", 1, "rows"):
        raise InputError("a bad row")
    *_, last = capsys.readouterr().err.split("rows/s")
    assert last.endswith("\x1b[2K") if terminal else last == ""
