"""`citer status`: where promises stand, by the evidence alone."""

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from citer.cli.main import call
from citer.serving.evidence import Evidence, now
from citer.serving.promise import Promise
from citer.serving.status import standings

PATH = ["risk 0.8 audit 0.1", "risk 0.9 audit 0.1", "score 1"]
PROMISE = Promise(path=PATH, graded=0.05, same=0.05, delta=0.05)
VERSION = "citer-router/3"
NO_VALUES = ["0 of 20", "1 of 20", "none yet"]
OWN = {"promise": PROMISE.model_dump(), "false_alarms": 20}


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evidence:
    """Evidence of a version, where three lost answers in a row are an alarm, and of another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    kept = Evidence(Path("mlruns/evidence.db"))
    for version in (VERSION, "citer-router/4"):
        declare(kept, version, PROMISE)
    return kept


def declare(kept: Evidence, version: str, promise: Promise, hours: float = 24) -> None:
    """Store a promise, as a server that starts now."""
    settings = {"false_alarms": 20, "shadow_deadline": hours, "since": now()}
    declared = json.dumps({"promise": promise.model_dump(), **settings})
    kept.declare(version, declared, kept.promises().get(version, ""))


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the lines about each version, without the names of the facts."""
    text = capsys.readouterr().out
    blocks = [block.splitlines() for block in text.split("citer-router/")[1:]]
    return [[line[18:] if line[18:] else line for line in block] for block in blocks]


def add(rule: str, count: int, lost: bool) -> None:
    """Store shadow answers in one transaction, since each waits for the disk."""
    row = VERSION, "2026-11-26 12:00:00", rule, lost, 0.05
    with sqlite3.connect("mlruns/evidence.db") as database:
        statement = "INSERT INTO entries VALUES (NULL, ?, ?, ?, ?, ?)"
        database.executemany(statement, [row] * count)
    database.close()


def lose(rule: str = PATH[0], count: int = 3) -> None:
    add(rule, count, True)


def keep(rule: str, count: int) -> None:
    add(rule, count, False)


def test_each_version_has_its_facts_and_each_step_a_line(
    evidence: Evidence, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(PATH[0], 1)
    assert call(["status"]) == 0
    # One good answer: the mean of .95^-1 (1 - q) over the alternatives q; the sum starts at 1.
    mean = sum(1 - 0.05 * worse for worse in (1.25, 1.5, 2, 3, 5)) / 5 / 0.95
    values = [f"{mean:.3g} of 20", f"{mean:.3g} of 20", "2026-11-26 12:00:00 UTC"]
    assert printed(capsys) == [
        ["3", PATH[0], "kept", "1 since the last step, 0 of them lost", *values],
        ["4", PATH[0], "kept", "0 since the last step, 0 of them lost", *NO_VALUES],
    ]
    lose()
    keep(PATH[1], 2)
    lose(PATH[1], 1)
    assert call(["status", "--evidence", str(Path("mlruns/evidence.db").absolute())]) == 0
    [_, rule, promise, answers, *_, step], _ = printed(capsys)
    assert rule == PATH[1]
    assert promise.startswith("revoked, step 1 of 2; to step forward: e-value ")
    assert answers == "3 since the last step, 1 of them lost"
    assert f"`{PATH[0]}` → `{PATH[1]}`: 3 of 4 shadow answers lost, e-detector" in step


def test_without_evidence_for_too_long_there_is_no_promise(
    evidence: Evidence, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exact rule needs no evidence. An answer of a server that ended counts as one."""
    declare(evidence, VERSION, PROMISE, hours=-1)
    declare(evidence, "citer-router/4", PROMISE.model_copy(update={"path": PATH[2:] * 2}), -1)
    declare(evidence, "citer-router/5", PROMISE)
    assert call(["status"]) == 0
    promises = [each[2] for each in printed(capsys)]
    assert promises == ["kept; lapsed: 0 hours without one", "kept", "kept"]
    lose()
    assert call(["status"]) == 0
    assert re.fullmatch(r"revoked, step 1 .*; lapsed: \d+ hours without one", printed(capsys)[0][2])


def test_a_promise_that_an_older_server_declared_is_shown(
    evidence: Evidence, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence.declare(VERSION, json.dumps(OWN), evidence.promises()[VERSION])
    assert call(["status"]) == 0
    assert printed(capsys)[0][2] == "kept"


def test_a_step_forward_needs_evidence(
    evidence: Evidence, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(version: str, reason: str) -> None:
        before = evidence.after(version)
        assert call(["status", "--step-forward", version]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"citer: {version}: {reason}"), line
        assert evidence.after(version) == before

    refused("r/1", "not in mlruns/evidence.db, expected one of: citer-router/3, citer-router/4")
    refused(VERSION, "no step forward, its promise is kept")
    lose()
    step = "no step forward, its promise is revoked, step 1 of 2; to step forward: e-value"
    refused(VERSION, f"{step} 1 of 20")
    # A good answer multiplies an alternative q by (1 - q) / .95; q = 0 has a quarter of the mean.
    needed = next(n for n in range(999) if sum((1 - q) ** n for q in QS) / 4 / 0.95**n >= 20)
    keep(PATH[0], needed - 1)
    refused(VERSION, f"{step} 1")
    keep(PATH[0], 1)
    assert call(["status"]) == 0
    assert "; evidence says step forward: " in capsys.readouterr().out
    assert call(["status", "--step-forward", VERSION]) == 0
    assert f"{VERSION}: `{PATH[0]}` is in force again" in capsys.readouterr().out
    assert standings(evidence.place)[VERSION].place == 0
    refused(VERSION, "no step forward, its promise is kept")


QS = [0.05 * better for better in (0, 0.25, 0.5, 0.75)]


@pytest.mark.parametrize("content", [None, b"no database"])
def test_a_file_without_evidence_is_one_line(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "evidence.db"
    if content:
        file.write_bytes(content)
    assert call(["status", "--evidence", str(file)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"citer: {file}: no evidence ")
    assert file.exists() == bool(content)


@pytest.mark.parametrize("address", ["u:secret@h/x", "h/x?user=u&password=secret"])
def test_no_line_has_a_password(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(own: Evidence, place: str) -> None:
        own.place = place

    monkeypatch.setattr(Evidence, "__init__", unread)
    monkeypatch.setattr(Evidence, "promises", lambda _: {})
    monkeypatch.setenv("CITER_EVIDENCE", f"postgresql://{address}")
    assert call(["status"]) == 2
    assert "secret" not in capsys.readouterr().err
    assert "secret" not in str(Evidence(f"postgresql://{address}")._unusable("it is full"))


def test_evidence_without_a_version_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that found no promise to watch has made the file."""
    file = tmp_path / "evidence.db"
    Evidence(file)
    assert call(["status", "--evidence", str(file)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"citer: {file}: no evidence here")


def test_status_imports_no_slow_library(evidence: Evidence) -> None:
    slow = {"torch", "transformers", "math_verify", "mlflow", "prefect", "dvc"}
    code = "import sys; from citer.cli.main import call; call(['status'])\n"
    code += f"print({slow} & sys.modules.keys())"
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert VERSION in shown
    assert shown.endswith("set()\n")


@pytest.mark.parametrize(
    "record",
    [
        {"promise": {"rules": []}, "false_alarms": 20},
        OWN | {"since": "yesterday", "shadow_deadline": 24},
        OWN | {"since": "2026-11-29 10:00:00"},
    ],
)
def test_evidence_of_another_citer_is_named_in_one_line(
    evidence: Evidence, capsys: pytest.CaptureFixture[str], record: dict[str, Any]
) -> None:
    evidence.declare("citer-router/5", json.dumps(record), "")
    assert call(["status"]) == 0
    out, err = capsys.readouterr()
    [line] = err.splitlines()
    assert line.endswith("citer-router/5: not evidence that this citer reads")
    assert "citer-router/3" in out
