"""The verdict on an answer: in a process that can be ended, and with answers that are cut off."""

import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from citer.data.importing import parse_row
from citer.data.tasks.task import GraderError
from citer.serving import shadow
from citer.serving.promise import Promise
from citer.serving.shadow import Judge, judged
from tests.flows.servers import until
from tests.tiny import MATH

PROMISE = Promise(path=["score 0.5", "score 1"], graded=0.05, same=0.1, delta=0.05)
FIDELITY = PROMISE.model_copy(update={"graded": None})
RIGHT, WRONG, ENDLESS = "\\boxed{31}", "\\boxed{30}", "\\boxed{9^{9^{9^{9}}}}"
OPEN = replace(MATH, answer=None)


@pytest.mark.parametrize(
    ("problem", "text", "llm", "verdict"),
    [
        (MATH, RIGHT, RIGHT, (False, 0.05)),
        (MATH, WRONG, RIGHT, (True, 0.05)),
        (MATH, None, RIGHT, (True, 0.05)),
        (MATH, WRONG, WRONG, None),
        (MATH, RIGHT, WRONG, None),
        (MATH, RIGHT, None, None),
        (OPEN, WRONG, "It is " + WRONG, (False, 0.1)),
        (OPEN, RIGHT, WRONG, (True, 0.1)),
        (OPEN, None, WRONG, (True, 0.1)),
        (OPEN, WRONG, None, None),
        (OPEN, None, None, None),
    ],
)
def test_an_answer_that_is_cut_off_is_wrong(problem, text, llm, verdict) -> None:
    assert judged(PROMISE, problem, text, llm) == verdict


def test_an_answer_that_cannot_be_compared_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*asked: object) -> bool:
        raise GraderError("a bug in a grader of one's own")

    monkeypatch.setattr(shadow, "same", failing)
    assert judged(PROMISE, OPEN, RIGHT, RIGHT) == (True, 0.1)


def test_a_comparison_without_end_does_not_count_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    judge = Judge()
    assert judge(PROMISE, OPEN, WRONG, RIGHT) == (True, 0.1)
    first = judge._process
    monkeypatch.setattr(shadow, "SECONDS", 2.0)
    assert judge(PROMISE, replace(MATH, answer="x^2"), RIGHT, ENDLESS) is None
    assert [each.getMessage() for each in caplog.records] == [
        "a shadow answer is not counted: no verdict within 2 s"
    ]
    assert first
    first.join(30)
    assert first.exitcode == -9
    monkeypatch.setattr(shadow, "SECONDS", 100.0)
    assert judge(PROMISE, OPEN, RIGHT, RIGHT) == (False, 0.1)
    second = judge._process
    assert second
    second.kill()  # as the kernel does if memory is short
    second.join(30)
    assert judge(PROMISE, OPEN, RIGHT, RIGHT) is None
    assert caplog.messages[1:] == [
        "a shadow answer is not counted: the process that judges it has ended"
    ]
    assert judge(PROMISE, OPEN, RIGHT, RIGHT) == (False, 0.1)


def test_a_fidelitys_promise_judges_an_answer_that_could_be_graded_by_sameness() -> None:
    assert judged(FIDELITY, MATH, WRONG, WRONG) == (False, 0.1)
    assert judged(FIDELITY, MATH, WRONG, RIGHT) == (True, 0.1)


def test_two_right_answers_that_may_differ_do_not_count_without_the_right_one() -> None:
    row = {"question": "The capital?", "answer": "Paris"}
    asked = parse_row(row, "contains", "answer")
    bare = replace(asked, answer=None)
    here, there = "The capital is Paris.", "It is Paris, of course."
    assert judged(PROMISE, bare, there, here) is None
    assert judged(PROMISE, asked, there, here) == (False, 0.05)
    assert judged(FIDELITY, bare, there, here) == (True, 0.1)


PARENT = """
import time
from citer.serving.shadow import Judge
from tests.promise.test_judge import OPEN, PROMISE, RIGHT
judge = Judge()
judge(PROMISE, OPEN, RIGHT, RIGHT)
print(judge._process.pid, flush=True)
time.sleep(99)
"""


def test_a_judge_ends_with_a_server_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as server:
        assert server.stdout
        judge = int(server.stdout.readline())
        server.kill()
    until(lambda: not psutil.pid_exists(judge), 30)
