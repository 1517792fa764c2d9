import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from prefect.states import Failed

from citer.cli.main import REFUSED
from citer.errors import InputError, TemporaryError
from flows.dvc_commands import Log
from flows.pipeline import STEP
from flows.repro import reproduce, stage_graph
from flows.stage_process import failure
from tests.flows.conftest import Pipeline

MINUTE = timedelta(minutes=1)

# Continues after the lines in data/.partial, as the real stages do.
RESUMING = """
import os, sys
from pathlib import Path

partial = Path("data/.partial/lines")
partial.parent.mkdir(parents=True, exist_ok=True)
done = len(partial.read_text().splitlines()) if partial.exists() else 0
with partial.open("a") as lines:
    for number in range(done, 6):
        if number == 3 and not done:
            lines.flush()
            os.kill(os.getpid(), 9)
        print(number, file=lines)
partial.rename("lines.txt")
"""


def shell(command: str) -> str:
    return f"sh -c '{command}'"


def run(name: str, timeout: timedelta = MINUTE) -> tuple[bool, list[str]]:
    shown: list[str] = []
    return reproduce(name, timeout, shown.append), shown


def test_stages_are_listed_after_their_dependencies(pipeline: Pipeline) -> None:
    pipeline(
        {
            "train": {
                "foreach": {"2": {"previous": "1"}, "1": {"previous": "0"}},
                "do": {
                    "cmd": "true",
                    "deps": ["routers/${item.previous}"],
                    "outs": ["routers/${key}"],
                },
            },
            "router0": {"cmd": "true", "outs": ["routers/0"]},
        }
    )
    assert list(stage_graph().items()) == [
        ("router0", set()),
        ("train@1", {"router0"}),
        ("train@2", {"train@1"}),
    ]


def test_a_stage_runs_again_only_after_a_dependency_changed(pipeline: Pipeline) -> None:
    pipeline({"copy": {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]}})
    Path("a").write_text("one")
    assert run("copy")[0] is True
    assert run("copy")[0] is False
    Path("a").write_text("two")
    assert run("copy")[0] is True
    Path("a").write_text("one")  # restored from DVC's cache, not run
    assert run("copy")[0] is False
    assert Path("b").read_text() == "one"


def test_the_output_of_a_stage_is_shown_without_the_advice_of_dvc(pipeline: Pipeline) -> None:
    pipeline({"speak": {"cmd": shell("echo one; echo two >&2; touch a"), "outs": ["a"]}})
    _, shown = run("speak")
    assert {"one", "two"} <= set(shown)
    assert not [line for line in shown if re.search("lock file|git add|dvc push", line)]


def test_a_missing_dependency_is_refused(pipeline: Pipeline) -> None:
    pipeline({"copy": {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]}})
    with pytest.raises(InputError, match=r"No such file or directory: .*/a"):
        run("copy")


def put_a_folder(log: Log) -> None:
    Path(".dvc/tmp/lock").mkdir(parents=True)


def note_somebody(log: Log) -> None:
    somebody = {"write": {str(Path("b").absolute()): {"pid": 1, "cmd": "dvc repro"}}, "read": {}}
    Path(".dvc/tmp").mkdir(parents=True, exist_ok=True)
    Path(".dvc/tmp/rwlock").write_text(json.dumps(somebody))


FAILURES: list[tuple[Callable[[Log], None], str]] = [
    (put_a_folder, r"^\[Errno 21\].*/\.dvc/tmp/lock'$"),
    (note_somebody, r"(?s)is busy, .*\n  \(PID 1\): dvc repro\n.*and try again\.$"),
]


@pytest.mark.parametrize(("happens", "message"), FAILURES)
def test_temporary_dvc_errors_are_retried_and_keep_their_whole_message(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Log], None],
    message: str,
) -> None:
    pipeline({"copy": {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]}})
    Path("a").write_text("one")
    monkeypatch.setattr("flows.repro.repair", happens)  # in place of the repair
    with pytest.raises(TemporaryError, match=message):
        run("copy")


def test_a_file_that_dvc_cannot_read_is_refused_with_its_message(pipeline: Pipeline) -> None:
    pipeline({"copy": {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]}})
    Path(".dvc/config").write_text("[core]\nnonsense = 1\n")
    with pytest.raises(InputError, match=r"^config file error: .*nonsense") as refused:
        run("copy")
    assert not isinstance(refused.value, TemporaryError)


def test_a_temporary_error_of_a_stage_keeps_its_line_and_is_retried() -> None:
    error = failure("label", REFUSED, "http://llm: no answer")
    assert isinstance(error, TemporaryError)
    assert str(error) == "http://llm: no answer"
    assert STEP["retry_condition_fn"](None, None, Failed(data=error))


LOWER = r"; if it did, lower decode.slots in params.yaml$"


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("exit 2", InputError, r"^label@1: exit status 2$"),
        ("echo ValueError: no; exit 1", TemporaryError, r"^label@1: exit status 1$"),
        ("kill -9 $$; sleep 600", TemporaryError, LOWER),
        ("kill -9 $PPID; sleep 600", TemporaryError, LOWER),
    ],
    ids=["bad input", "crash", "killed shell", "killed process of the stage"],
)
def test_a_command_that_fails_says_how_it_ended_and_is_retried_but_for_bad_input(
    pipeline: Pipeline, command: str, error: type[InputError], message: str
) -> None:
    pipeline({"label": {"foreach": ["1"], "do": {"cmd": command}}})
    with pytest.raises(error, match=message) as failed:
        run("label@1")
    retried = STEP["retry_condition_fn"](None, None, Failed(data=failed.value))
    assert retried == (error is TemporaryError)


def test_a_log_gets_each_line_while_the_stage_runs(pipeline: Pipeline) -> None:
    waits = "echo half; until test -e seen; do sleep 0.1; done; echo whole"
    pipeline({"work": {"cmd": shell(waits)}})
    shown: list[str] = []

    def log(line: str) -> None:
        shown.append(line)
        if line == "half":
            Path("seen").touch()

    reproduce("work", MINUTE, log)
    assert shown[-2:] == ["half", "whole"]


def test_a_stage_that_takes_too_long_is_ended(pipeline: Pipeline) -> None:
    pipeline({"hang": {"cmd": shell("echo $$ > pid; exec sleep 600")}})
    with pytest.raises(TemporaryError, match="took longer than 0:00:06"):
        run("hang", timedelta(seconds=6))
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)


def test_a_stage_killed_midway_ends_up_with_the_same_bytes(pipeline: Pipeline) -> None:
    pipeline({"count": {"cmd": f"{sys.executable} count.py", "outs": ["lines.txt"]}})
    Path("count.py").write_text(RESUMING)
    with pytest.raises(TemporaryError, match=r"^count: killed \(SIGKILL\), as Linux does if mem"):
        run("count")
    assert Path("data/.partial/lines").read_text() == "0\n1\n2\n"
    assert run("count")[0] is True
    assert Path("lines.txt").read_text() == "0\n1\n2\n3\n4\n5\n"


@pytest.mark.slow
def test_two_runs_at_once_run_the_stage_once_and_the_second_logs_that_it_waits(
    pipeline: Pipeline,
) -> None:
    pipeline({"slow": {"cmd": shell("echo ran >> log; sleep 3; cp log out"), "outs": ["out"]}})
    script = (
        "import datetime, flows.repro as r\n"
        "with r.one_run(print): print(r.reproduce('slow', datetime.timedelta(minutes=1), print))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in both]
    waited, ran = sorted(outputs, key=lambda lines: lines[-1])
    assert (waited[-1], ran[-1]) == ("False", "True")
    assert waited[0].startswith("waiting for another run in this folder")
    assert Path("log").read_text() == "ran\n"


def test_the_interpreters_own_commands_come_first(pipeline: Pipeline) -> None:
    pipeline({"which": {"cmd": shell("which python > out"), "outs": ["out"]}})
    run("which")
    assert Path("out").read_text().strip() == str(Path(sys.executable).with_name("python"))


@pytest.mark.slow
def test_a_terminal_shows_progress_while_the_stage_runs(pipeline: Pipeline) -> None:
    Path("draw.sh").write_text(r'printf "\r 50 %%"; sleep 3; printf "\r100 %%\n"')
    pipeline({"draw": {"cmd": "sh draw.sh"}})
    script = (
        "import datetime, flows.repro as r;"
        "r.reproduce('draw', datetime.timedelta(minutes=1), print)"
    )
    parent_end, child_end = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", script], stdout=child_end, stderr=child_end)
    os.close(child_end)
    seen = b""
    while not seen.endswith(b"\r 50 %"):
        seen += os.read(parent_end, 1024)
    assert process.poll() is None
    process.wait()
    assert os.read(parent_end, 1024).startswith(b"\r100 %")
    os.close(parent_end)
