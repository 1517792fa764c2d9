"""What is shown of long work."""

from types import SimpleNamespace

import pytest

from citer.errors import InputError
from citer.progress import _Throughput, progress


@pytest.mark.parametrize(
    ("completed", "elapsed", "finished", "shown"),
    [
        (0, None, None, "0 rows/s"),
        (0, 3.0, None, "0 rows/s"),
        (1, 4.0, None, "0.25 rows/s"),
        (2, 0.5, 0.5, "4 rows/s"),
        (90, 60.0, 6.0, "15 rows/s"),
        (90_000, 30.0, None, "3,000 rows/s"),
    ],
)
def test_throughput_is_of_all_that_was_done_in_all_the_time(
    completed: int, elapsed: float | None, finished: float | None, shown: str
) -> None:
    task = SimpleNamespace(
        completed=completed, elapsed=elapsed, finished_time=finished, fields={"unit": "rows"}
    )
    assert str(_Throughput().render(task)) == shown


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
