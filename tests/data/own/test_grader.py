"""The process that grades for a task of the user."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.data.tasks.grading import Grade, assess
from citer.data.tasks.own import OwnTask
from citer.executors.base import Unit
from citer.executors.processes import Forked

WriteTask = Callable[..., str]


def problem_of(task: str) -> Problem:
    return parse_row({"q": "yes"}, task, "answer")


def grader_pid(task: str) -> int:
    own = find_task(task)
    assert isinstance(own, OwnTask)
    child = own._grader._child
    assert child
    return child.process.pid


def ends(pid: int) -> bool:
    """Wait until a process has ended; a zombie has."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("returned", "grade"),
    [
        ("True", Grade(True, 1)),
        ("False", Grade(False, 0)),
        ("1", Grade(True, 1)),
        ("0.5", Grade(False, 0.5)),
        ("problem.answer == completion", Grade(True, 1)),
        ("exec('assert problem.answer == 1')", Grade(False, 0)),
        ("len(completion) / 4", Grade(False, 0.75)),
    ],
)
def test_a_grade_is_a_truth_or_a_share(write_task: WriteTask, returned: str, grade: Grade) -> None:
    assert assess(problem_of(write_task(f"return {returned}")), "yes") == grade


def test_a_class_of_the_user_gets_the_thinking_of_a_model_too(write_task: WriteTask) -> None:
    body = "return completion == '<think>no</think>yes'"
    assert assess(problem_of(write_task(body)), "<think>no</think>yes").correct


def test_a_share_is_right_from_the_pass_share_on(write_task: WriteTask) -> None:
    problem = problem_of(write_task("return float(completion)", "pass_share = 0.5"))
    assert [assess(problem, text).correct for text in ("0.49", "0.5", "1")] == [False, True, True]


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ("return completion.x", "AttributeError: 'str' object has no attribute 'x'"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("os._exit(0)", "its process ended with exit status 0 before it returned"),
        (
            "os.kill(os.getpid(), signal.SIGSEGV)",
            "its process ended by signal 11 before it returned",
        ),
        ("os.kill(os.getpid(), 40)", "its process ended by signal 40"),
        ("return 'x' * 2**40", "MemoryError"),
        ("return open('f', 'wb').write(b'x' * 2**25)", "OSError: [Errno 27] File too large"),
        ("return input()", "EOFError: EOF when reading a line"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("return bytes(range(256)).decode()", "UnicodeDecodeError: 'utf-8' codec can't"),
        ("raise ValueError('one\\ntwo')", "ValueError: one two"),
        *(
            (f"return {value}", f"ValueError: grade() returned {shown}; expected True, False or")
            for value, shown in (
                ("2.0", "2.0"),
                ("-0.1", "-0.1"),
                ("None", "None"),
                ("float('nan')", "nan"),
                ("'1'", "'1'"),
                ("[]", "[]"),
            )
        ),
    ],
)
def test_a_grader_that_fails_counts_as_wrong_and_the_next_answer_is_graded(
    write_task: WriteTask, body: str, failure: str
) -> None:
    problem = problem_of(write_task(f"if completion == 'yes': return 1\n{body}", "time_limit = 60"))
    grade = assess(problem, "no")
    assert (grade.correct, grade.share) == (False, 0)
    assert grade.failure
    assert grade.failure.startswith(failure)
    assert "\n" not in grade.failure
    assert assess(problem, "yes") == Grade(True, 1)


@pytest.mark.parametrize(
    "body", ["while True: pass", "time.sleep(99)", "os.closerange(3, 99)\ntime.sleep(99)"]
)
def test_a_grader_that_hangs_counts_as_wrong_and_the_next_answer_is_graded(
    write_task: WriteTask, body: str
) -> None:
    task = write_task(f"if completion == 'yes': return 1\n{body}", "time_limit = 1")
    problem = problem_of(task)
    assert assess(problem, "no") == Grade(False, 0, "timeout after 1 s")
    assert assess(problem, "yes") == Grade(True, 1)


def test_an_answer_changes_nothing_for_the_next_one(write_task: WriteTask) -> None:
    body = "import builtins\nbuiltins.seen = hasattr(builtins, 'seen')\nreturn not builtins.seen"
    problem = problem_of(write_task(body))
    assert [assess(problem, "x").share for _ in range(3)] == [1, 1, 1]


def test_an_answer_has_an_empty_folder_of_its_own(write_task: WriteTask, project: Path) -> None:
    body = "was = os.listdir()\nopen('left', 'w').close()\n"
    problem = problem_of(write_task(f"{body}return not was and completion != os.getcwd()"))
    assert [assess(problem, str(project)).share for _ in range(2)] == [1, 1]


def test_what_an_answer_prints_disturbs_nothing(
    write_task: WriteTask, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "print('x' * 10**6)\nos.write(1, b'{}')\nos.write(2, b'{}')\nreturn 1"
    assert assess(problem_of(write_task(body)), "") == Grade(True, 1)
    assert capfd.readouterr() == ("", "")


def test_a_grader_that_was_killed_is_started_again(write_task: WriteTask) -> None:
    task = write_task("return 1")
    problem = problem_of(task)
    assert assess(problem, "").share == 1
    first = grader_pid(task)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    assert assess(problem, "").share == 1
    assert grader_pid(task) != first


class GradeAll:
    """A job that grades each text, and returns the pid of its grader."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, texts: Sequence[str], /, *, advance: object) -> tuple[list[float], int]:
        shares = [assess(self.problem, text).share for text in texts]
        return shares, grader_pid(self.problem.task)


def test_each_forked_worker_has_a_grader_which_ends_with_it(write_task: WriteTask) -> None:
    task = write_task("return completion == 'yes'")
    problem = problem_of(task)
    assert assess(problem, "yes").share == 1
    units = [Unit(str(n), ["yes", "no", "yes"]) for n in range(2)]
    results = list(Forked(2).run(GradeAll(problem), units, lambda _: None))
    assert [shares for shares, _ in results] == [[1, 0, 1]] * 2
    pids = [pid for _, pid in results]
    assert len({*pids, grader_pid(task)}) == 3
    assert all(map(ends, pids))
    assert assess(problem, "no").share == 0


PARENT = """
import os, signal
from citer.data.importing import parse_row
from citer.data.tasks import find_task
from citer.data.tasks.grading import assess
problem = parse_row({{"q": "yes"}}, "{task}", "answer")
assess(problem, "yes")
print(find_task("{task}")._grader._child.process.pid, flush=True)
{ending}
"""


@pytest.mark.parametrize("ending", ["pass", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(1)"])
def test_a_grader_ends_when_its_parent_ends(write_task: WriteTask, ending: str) -> None:
    code = PARENT.format(task=write_task("return 1"), ending=ending)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stderr == ""
    assert ends(int(shown.stdout))
