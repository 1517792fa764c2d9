"""Evidence on disk: servers share it, and a killed one leaves whole rows only."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from citer.cli.main import call
from citer.config.params import ServeParams
from citer.data.problems import Problem
from citer.errors import InputError
from citer.rule import LLM, Rule
from citer.serving.evidence import Evidence
from citer.serving.promise import Promise, Standing, Step
from citer.serving.shadow import Keeper
from citer.serving.status import standings

RULE, EXACT = Rule.parse("score 0.1"), Rule.parse("every 4 audit 1")
PROMISE = Promise(path=[str(RULE), str(EXACT)], graded=0.05, same=0.1, delta=0.05)
ALWAYS = ServeParams(shadow=1.0, false_alarms=1000)
WRITE = """
import sys
from citer.serving.evidence import Evidence
evidence = Evidence(sys.argv[1])
while True:
    print(evidence.add("v/1", "score 0.1", True, 0.05), flush=True)
"""


def problem(answer: str | None = None) -> Problem:
    return Problem("p", "number", "2 + 2?", None, None, answer, "test", "")


def keeper(path: Path | str, told: list[Step] | None = None, **settings: float) -> Keeper:
    wanted = ALWAYS.model_copy(update=settings)
    tell = [] if told is None else told

    def tell_of(_version: str, _standing: Standing, step: Step | None) -> None:
        assert step  # `report` is not called
        tell.append(step)

    return Keeper("v/1", PROMISE, Evidence(path), wanted, tell_of)


def lose(one: Keeper) -> None:
    one.take(problem(), {RULE: "#### 5", LLM: "#### 4"})


def test_a_killed_writer_leaves_what_it_has_said_and_at_most_one_row_more(tmp_path: Path) -> None:
    path, random, known = tmp_path / "evidence.db", Random(1), 0
    for _ in range(4):
        command = [sys.executable, "-c", WRITE, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            writer.stdout.readline()
            time.sleep(random.uniform(0, 0.3))
            os.kill(writer.pid, signal.SIGKILL)
            said = 1 + sum(1 for line in writer.stdout if line.endswith("\n"))
        numbers = [entry.number for entry in Evidence(path).after("v/1")]
        assert numbers == sorted(set(numbers))
        assert known + said <= len(numbers) <= known + said + 1
        known = len(numbers)


def test_servers_of_one_version_step_together_and_one_of_them_tells(tmp_path: Path) -> None:
    step_together(tmp_path / "evidence.db", [])


def step_together(place: Path | str, told: list[Step]) -> None:
    one, other = (keeper(place, told) for _ in range(2))
    for k in range(6):
        lose((one, other)[k % 2])
    for each in (one, other):
        each.refresh()
    assert one.rule == other.rule == EXACT
    assert len(told) == 1
    assert one.standing.steps == other.standing.steps


def test_each_server_acts_on_a_step_before_one_of_them_tells(tmp_path: Path) -> None:
    said: list[str] = []
    one, other = (keeper(tmp_path / "evidence.db") for _ in range(2))
    for each in (one, other):
        each.stepped = lambda: said.append("stepped")
        each.told = lambda *_: said.append("told")
    for _ in range(6):
        lose(one)
    other.refresh()
    assert said == ["stepped", "told", "stepped"]


def test_evidence_that_cannot_be_read_again_at_once_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def locked(*_: object) -> None:
        raise InputError("database is locked")

    one = keeper(tmp_path / "evidence.db")
    with monkeypatch.context() as patch:
        patch.setattr(one.evidence, "after", locked)
        assert one.take(problem(), {RULE: "#### 5", LLM: "#### 4"}) == [True]
    assert caplog.messages == ["database is locked"]
    one.refresh()
    assert (one.standing.shadowed, one.standing.lost) == (1, 1)


def test_a_restarted_server_stands_where_it_stood(tmp_path: Path) -> None:
    told: list[Step] = []
    first = keeper(tmp_path / "evidence.db", told)
    for _ in range(3):
        lose(first)
    again = keeper(tmp_path / "evidence.db", told)
    assert again.standing.detector.value == first.standing.detector.value > 0
    assert (again.standing.shadowed, again.standing.lost) == (3, 3)
    for _ in range(3):
        lose(again)
    third = keeper(tmp_path / "evidence.db", told)
    assert third.rule == again.rule == EXACT
    assert len(told) == 1


def test_chance_alone_draws_requests_and_no_start_repeats_another(tmp_path: Path) -> None:
    drawn = []
    for _ in range(2):
        each = keeper(tmp_path / "evidence.db", shadow=0.1)
        drawn.append([bool(each.draw()) for _ in range(5000)])
    assert drawn[0] != drawn[1]
    for places in drawn:
        assert 400 < sum(places) < 600  # more than four standard deviations


def test_what_a_shadowed_request_needs(tmp_path: Path) -> None:
    one = keeper(tmp_path / "evidence.db")
    assert one.draw() == (LLM,)
    for _ in range(6):
        lose(one)
    assert one.draw() == (RULE,)  # the exact rule's answer is the LLM's own
    before = one.standing.forward.value
    one.take(problem(), {EXACT: "#### 4", RULE: "#### 4"})
    assert one.standing.forward.value > before
    assert one.standing.shadowed == 0


def test_no_evidence_for_too_long_is_no_promise(tmp_path: Path) -> None:
    now = [1000.0]
    one = Keeper("v/1", PROMISE, Evidence(tmp_path / "e.db"), ALWAYS, clock=lambda: now[0])
    now[0] += 23.9 * 3600
    assert not one.lapsed
    now[0] += 0.2 * 3600
    assert one.take(problem("4"), {RULE: "#### 4", LLM: "#### 5"}) == [None]
    assert one.evidence.after("v/1") == []  # such an answer does not count
    assert one.lapsed
    lose(one)
    assert not one.lapsed
    assert one.evidence.after("v/2") == []


def test_a_restart_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, hours = tmp_path / "evidence.db", [0.0]
    monkeypatch.setattr("citer.serving.shadow.hours_since", lambda _: hours[0])
    keeper(path)
    before = Evidence(path).promises()
    hours[0] = 23.9
    assert not keeper(path).lapsed
    hours[0] = 24.1
    assert keeper(path).lapsed
    assert Evidence(path).promises() == before  # with its `since`
    hours[0] = -1  # another machine's clock is ahead
    assert not keeper(path).lapsed


@pytest.mark.parametrize(("hours", "lapsed"), [(1, False), (25, True)])
def test_the_last_answer_before_a_restart_is_evidence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hours: float,
    lapsed: bool,
) -> None:
    def ago(hours: float) -> str:
        return f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%d %H:%M:%S}"

    monkeypatch.setattr("citer.serving.shadow.now", lambda: ago(30))
    first = keeper(tmp_path / "evidence.db")
    monkeypatch.setattr("citer.serving.evidence.now", lambda: ago(hours))
    lose(first)
    assert keeper(tmp_path / "evidence.db").lapsed is lapsed
    assert call(["status", "--evidence", str(tmp_path / "evidence.db")]) == 0
    assert ("kept; lapsed: 25 hours without one" in capsys.readouterr().out) is lapsed


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evidence.db").write_text("no database" * 100)
    with pytest.raises(InputError, match=r"evidence\.db: no evidence can be kept here"):
        Evidence(tmp_path / "evidence.db")


def test_a_lock_that_is_never_freed_is_bad_input_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = Evidence(tmp_path / "evidence.db")
    monkeypatch.setattr("citer.serving.evidence.WAIT", 0.1)
    with sqlite3.connect(tmp_path / "evidence.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="locked"):
            evidence.add("v/1", "score 0.1", False, 0.05)


def test_a_report_tells_of_new_evidence_once(tmp_path: Path) -> None:
    told: list[tuple[int, Step | None]] = []

    def tell(_version: str, standing: Standing, step: Step | None) -> None:
        told.append((standing.seen, step))

    one = Keeper("v/1", PROMISE, Evidence(tmp_path / "evidence.db"), ALWAYS, tell)
    one.report()
    lose(one)
    one.report()
    one.report()
    assert told == [(1, None)]


def test_another_promise_of_an_equal_name_begins_anew(tmp_path: Path) -> None:
    """A new registry, or another router in the same folder."""
    path, told = tmp_path / "evidence.db", list[Step]()
    one = keeper(path, told)
    while one.rule == RULE:
        lose(one)
    other = PROMISE.model_copy(update={"delta": 0.1})
    for _ in range(2):  # the second is a restart
        made = Keeper("v/1", other, Evidence(path), ALWAYS)
        assert made.rule == RULE
        assert made.standing.shadowed == 0
    lose(made)
    [found] = standings(str(path)).values()
    assert (found.place, found.shadowed, found.lost) == (0, 1, 1)
    assert keeper(path).rule == RULE  # the first promise is no longer known


def test_the_first_servers_false_alarms_are_those_of_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a restart would put a revoked rule into force again."""
    first = keeper(tmp_path / "evidence.db")
    while first.rule == RULE:
        lose(first)
    assert not any("not used" in each for each in caplog.messages)
    other = keeper(tmp_path / "evidence.db", false_alarms=1e9)
    assert other.rule == EXACT
    said = "serve.false_alarms: 1e+09 is not used: the evidence of v/1 was begun with 1000"
    assert said in caplog.messages
    [shown] = standings(str(tmp_path / "evidence.db")).values()
    assert shown.rule == EXACT


def test_a_promise_that_another_server_declared_meanwhile_stays(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path / "evidence.db")
    for wanted in ("first", "second"):  # each found none
        evidence.declare("v/1", wanted, "")
    assert evidence.promises() == {"v/1": "first"}
