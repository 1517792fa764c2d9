"""Progress on terminals and in logs."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from citer.errors import InputError
from citer.progress import progress

Wait = Callable[[float], None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Stop the clock of the progress; return a function that lets seconds pass."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("citer.progress.time", SimpleNamespace(monotonic=lambda: clock.now))

    def wait(seconds: float) -> None:
        clock.now += seconds

    return wait


@pytest.mark.parametrize(
    ("total", "before", "done", "seconds", "line"),
    [
        (8, 0, 2, 4, "2 of 8 rows (25 %), 0.5 rows/s, 0:00:04 so far, 0:00:12 left"),
        (8, 5, 1, 4, "6 of 8 rows (75 %), 0.25 rows/s, 0:00:04 so far, 0:00:08 left"),
        (8, 5, 0, 4, "5 of 8 rows (62 %), 0 rows/s, 0:00:04 so far"),
        (8, 0, 8, 3700, "8 of 8 rows (100 %), 0.0022 rows/s, 1:01:40 so far"),
        (9_000, 0, 9_000, 3, "9,000 of 9,000 rows (100 %), 3,000 rows/s, 0:00:03 so far"),
        (None, 0, 30, 2, "30 rows, 15 rows/s, 0:00:02 so far"),
        (0, 0, 0, 0, "0 of 0 rows (100 %), 0 rows/s, 0:00:00 so far"),
    ],
)  # fmt: skip
def test_the_last_line_in_a_log_counts_and_speed_is_that_of_this_run(
    capsys: pytest.CaptureFixture[str],
    wait: Wait,
    total: int | None,
    before: int,
    done: int,
    seconds: float,
    line: str,
) -> None:
    with progress("reading", total, "rows", before) as advance:
        wait(seconds)
        advance(done)
    assert capsys.readouterr().err.splitlines()[-1] == f"reading: {line}"


def test_a_log_gets_a_line_a_minute_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str], wait: Wait
) -> None:
    with progress("label", 8, "rows", before=2) as advance:
        for _ in range(6):
            wait(25)
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" rows")[0] for line in lines] == ["label: 5 of 8", "label: 8 of 8"]


def test_work_within_work_shows_its_own_lines(
    capsys: pytest.CaptureFixture[str], wait: Wait
) -> None:
    with progress("outer", 2, "parts") as outer:
        with progress("inner", 2, "rows") as inner:
            wait(60)
            inner(1)
        outer(1)
    titles = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert titles == ["inner", "inner", "outer", "outer"]


def test_a_terminal_keeps_the_last_line_when_the_work_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_terminal(monkeypatch)
    with progress("finetune", 230, "steps", before=150) as advance:
        advance(80)
    last = capsys.readouterr().err.splitlines()[-1]
    assert "finetune: 230 of 230 steps (100 %)" in last
    assert "steps/s" in last


@pytest.mark.parametrize("terminal", [False, True])
def test_bad_input_leaves_no_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    if terminal:
        as_terminal(monkeypatch)
    with pytest.raises(InputError), progress("reading", 1, "rows"):
        raise InputError("a bad row")
    *_, last = capsys.readouterr().err.split("rows/s")
    assert last.endswith("\x1b[2K") if terminal else last == ""


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
