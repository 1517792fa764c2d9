"""The log of served answers: its files, their rights, its redaction, and what a kill leaves."""

import errno
import json
import logging
import os
import shutil
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from citer.errors import InputError
from citer.serving.log import Row, Traffic, load_hook, redacted
from citer.storage.schema import AUDITED
from citer.storage.seal import SEAL
from citer.storage.tables import read_table, table_metadata
from tests.flows.servers import until
from tests.served import disagreement, served

STAMP = json.dumps({"slm": {"digest": "a"}, "version": "3"})
RULE = "risk 0.8 audit 0.1"


def tables(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def questions(folder: Path) -> list[str]:
    """Return the questions of all tables, in the order of the files."""
    found = [read_table(file, AUDITED) for file in tables(folder)]
    return [question for table in found for question in table["question"].to_pylist()]


def log_all(log: Traffic, *rows: Row, rule: str = RULE, stamp: str = STAMP) -> None:
    for row in rows:
        log.put(stamp, rule, row)
    log.close()


def test_rows_become_tables_with_their_pair_version_and_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.log.ROWS", 2)
    log = Traffic(tmp_path / "log")
    log.put(STAMP, "score 0.5 audit 1", served("Question 0?"))
    log_all(log, served("Question 1?"), served("Question 2?", choices=[]))
    files = tables(tmp_path / "log")
    assert sorted(pq.read_metadata(file).num_rows for file in files) == [1, 2]
    assert sorted(questions(tmp_path / "log")) == [f"Question {n}?" for n in range(3)]
    two = next(file for file in files if pq.read_metadata(file).num_rows == 2)
    assert table_metadata(two) == json.loads(STAMP) | {
        "rules": {RULE: 1, "score 0.5 audit 1": 1},
        "schema_version": 2,
    }
    assert log.counts == {"logged": 3}


def test_a_row_returns_as_it_was(tmp_path: Path) -> None:
    row = served("Why?", messages=[{"role": "user", "content": "Grüezi.\u2028"}])
    log_all(Traffic(tmp_path), row)
    [file] = tables(tmp_path)
    assert read_table(file, AUDITED).to_pylist() == [row | {"problem_id": row_id(row)}]


def row_id(row: Row) -> str:
    kept = redacted(row, lambda row: row)
    assert kept
    return str(kept["problem_id"])


def test_answers_of_two_versions_are_in_two_tables(tmp_path: Path) -> None:
    log = Traffic(tmp_path)
    log.put(json.dumps({"version": "4"}), RULE, served("Why?"))
    log_all(log, served("What?"))
    found = [table_metadata(file)["version"] for file in tables(tmp_path)]
    assert sorted(found) == ["3", "4"]


def test_a_table_is_made_after_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citer.serving.log.SECONDS", 0)
    log = Traffic(tmp_path)
    log.put(STAMP, RULE, served("Why?"))
    files = until(lambda: tables(tmp_path), 60)
    log.close()
    assert tables(tmp_path) == files
    assert questions(tmp_path) == ["Why?"]


def test_a_flush_makes_tables_and_the_log_goes_on(tmp_path: Path) -> None:
    log = Traffic(tmp_path)
    for question in ("Why?", "What?"):
        log.put(STAMP, RULE, served(question))
        log.flush()
        assert question in questions(tmp_path)
    log.close()
    assert len(tables(tmp_path)) == 2


def test_only_the_user_can_read_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o755)
    log = Traffic(folder)
    log.put(STAMP, RULE, served("Why?"))
    [journal] = until(lambda: [*folder.glob(".*.jsonl")], 60)
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    log.close()
    [table] = tables(folder)
    assert stat.S_IMODE(table.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_killed_servers_rows_are_in_a_table_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.log.ROWS", 2)
    if not (child := os.fork()):
        log = Traffic(tmp_path)
        for number in range(3):
            log.put(STAMP, RULE, served(f"Question {number}?"))
        until(lambda: log.counts["logged"] == 3, 60)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(questions(tmp_path)) == 2
    [journal] = tmp_path.glob(".*.jsonl")
    with journal.open("a") as file:
        file.write('{"rule": "risk 0.8 au')  # a kill within a write
    Traffic(tmp_path).close()
    assert sorted(questions(tmp_path)) == [f"Question {n}?" for n in range(3)]
    assert not [*tmp_path.glob(".*.jsonl")]


def test_the_journal_of_a_living_server_is_left_to_it(tmp_path: Path) -> None:
    first = Traffic(tmp_path)
    first.put(STAMP, RULE, served("Why?"))
    until(lambda: first.counts["logged"], 60)
    Traffic(tmp_path).close()
    assert len([*tmp_path.glob(".*.jsonl")]) == 1
    first.close()
    assert questions(tmp_path) == ["Why?"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: cannot be written: File exists$"):
        Traffic(tmp_path / "file")


def hide(row: Row) -> Row | None:
    if row["question"] == "Drop me?":
        return None
    if row["question"] == "Break?":
        raise KeyError(row["question"])
    if row["question"] == "Exit?":
        raise SystemExit(3)
    row["question"] = row["question"].replace("Ann", "NAME")
    return row


def test_rows_are_redacted_left_out_or_failed_but_never_stored_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Traffic(tmp_path, hide)
    with caplog.at_level(logging.WARNING):
        log_all(log, *map(served, ("Who is Ann?", "Drop me?", "Break?", "Exit?", "Why?")))
    assert sorted(questions(tmp_path)) == ["Who is NAME?", "Why?"]
    assert log.counts == {"logged": 2, "left_out": 1, "failed": 2}
    assert [record.getMessage() for record in caplog.records] == [
        "a row is not logged: KeyError in its redaction"
    ]


HIDDEN = disagreement(2, slm=9, llm=7, rejected=True) | {"slm_text": None}


@pytest.mark.parametrize(
    "bad",
    [
        {"question": None},
        {"token_ids": ["a"]},
        {"completion": "\ud800"},
        {"truncated": 2},
        {"messages": [{"role": "user", "content": None}]},
        {"disagreements": [HIDDEN]},
    ],
)
def test_a_row_that_fits_no_table_is_counted_and_the_others_are_stored(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    log = Traffic(tmp_path)
    log_all(log, served("Bad?") | bad, served("Why?"))
    assert questions(tmp_path) == ["Why?"]
    assert log.counts == {"failed": 1, "logged": 1}


def fail(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_no_file_for_each_row_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Traffic(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("citer.serving.log._Journal.append", fail)
        log_all(log, *[served(f"Lost {number}?") for number in range(9)])
    assert log.counts == {"lost": 9}
    assert not [*tmp_path.glob(".*.jsonl")]


def test_rows_from_before_a_full_disk_are_in_a_table_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Traffic(tmp_path)
    log.put(STAMP, RULE, served("Why?"))
    with monkeypatch.context() as full:
        full.setattr("citer.serving.log._Journal.append", fail)
        log.put(STAMP, RULE, served("Lost?"))
    log_all(log, served("What?"))
    assert sorted(questions(tmp_path)) == ["What?", "Why?"]
    assert not [*tmp_path.glob(".*.jsonl")]


def test_a_row_of_a_journal_that_somebody_has_removed_is_lost(tmp_path: Path) -> None:
    log = Traffic(tmp_path)
    log.put(STAMP, RULE, served("Why?"))
    for journal in tmp_path.glob(".*.jsonl"):
        journal.unlink()
    log_all(log, served("Lost?"), served("What?"))
    assert questions(tmp_path) == ["What?"]
    assert log.counts == {"logged": 2, "lost": 1}


BAD_ROW = {"rule": "score 0.5", "row": served("Why?", messages=[{"role": "user", "content": None}])}


@pytest.mark.parametrize("lines", ["{}\nnot JSON\n", f"{{}}\n{json.dumps(BAD_ROW)}\n"])
def test_a_journal_that_fits_no_table_is_named_in_one_line(tmp_path: Path, lines: str) -> None:
    (tmp_path / ".20260101T000000-ab.jsonl").write_text(lines)
    with pytest.raises(InputError, match=r"ab\.jsonl: not a journal: .*; remove it$"):
        Traffic(tmp_path)


def test_a_redacted_completion_takes_its_tokens_and_audits_with_it() -> None:
    kept = redacted(served("Why?"), lambda row: row | {"completion": "…"})
    assert kept
    assert (kept["completion"], kept["token_ids"]) == ("…", [])
    assert kept["audited"] == kept["disagreements"] == []


def test_a_redacted_completion_takes_the_llms_answer_with_it_unless_that_is_redacted_too() -> None:
    row = served("Why?", reference="2 + 2", request="chatcmpl-1", user="ann")
    kept = redacted(row, lambda row: row | {"completion": "…", "user": None})
    assert kept
    assert (kept["reference"], kept["request"], kept["user"]) == (None, "chatcmpl-1", None)
    both = redacted(row, lambda row: row | {"completion": "…", "reference": "?"})
    assert both
    assert both["reference"] == "?"
    assert redacted(row, lambda row: row) == row


def test_the_id_of_a_redacted_question_does_not_tell_the_question() -> None:
    row = served("Who is Ann?")
    assert redacted(row, hide) == row | {
        "question": "Who is NAME?",
        "problem_id": served("Who is NAME?")["problem_id"],
    }
    assert row["question"] == "Who is Ann?"


def test_rows_that_the_disk_does_not_take_are_counted(tmp_path: Path) -> None:
    log = Traffic(tmp_path / "log")
    shutil.rmtree(tmp_path / "log")
    log_all(log, served("Why?"))
    assert log.counts == {"lost": 1}


def test_a_hook_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("our_redaction.py").write_text("def hide(row):\n    return None\nnumber = 3\n")
    Path("ends.py").write_text("import sys\nsys.exit(3)\n")
    assert load_hook("our_redaction:hide")({}) is None
    for name in (
        "our_redaction:number",
        "our_redaction:other",
        "our_redaction",
        "no_such:hide",
        "ends:hide",
    ):
        with pytest.raises(InputError, match=rf"^--redact: '{name}': "):
            load_hook(name)


def test_a_question_that_names_the_seal_damages_no_table(tmp_path: Path) -> None:
    """Parquet's footer repeats the largest text of a column before the metadata."""
    asked = "~ " + SEAL.decode()
    log_all(Traffic(tmp_path / "log"), served(asked))
    assert questions(tmp_path / "log") == [asked]


def test_a_journal_of_long_rows_becomes_a_table_before_it_is_too_large_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.log.CHARACTERS", 1000)
    log = Traffic(tmp_path / "log")
    log.put(STAMP, RULE, served("Long? " * 200))
    assert len(tables(tmp_path / "log")) == 1
    log.close()


def test_a_folder_with_a_gitignore_of_its_own_is_no_log(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text(".venv\n")
    mode = tmp_path.stat().st_mode
    with pytest.raises(InputError, match="not of a log, expected a folder for the log alone"):
        Traffic(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == ".venv\n"
    assert tmp_path.stat().st_mode == mode


def test_a_folder_of_other_files_is_no_log(tmp_path: Path) -> None:
    """It would leave git, and nobody else could read it."""
    (tmp_path / "1.parquet").touch()
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(InputError, match=r"train.jsonl: not of a log, expected a folder for the"):
        Traffic(tmp_path)
    assert not (tmp_path / ".gitignore").exists()
    (tmp_path / "train.jsonl").unlink()
    Traffic(tmp_path).close()


def test_a_damaged_journal_leaves_the_folder_to_others(tmp_path: Path) -> None:
    Traffic(tmp_path).close()
    (tmp_path / ".a.jsonl").write_text("no stamp\n{}\n")
    for _ in range(2):
        with pytest.raises(InputError, match=r"a\.jsonl"):
            Traffic(tmp_path)


def test_a_kill_at_a_start_leaves_the_gitignore_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, _text: str, **_: str) -> None:
        path.open("w").close()
        raise KeyboardInterrupt

    for _ in range(2):  # the first start, and one that finds the file
        with monkeypatch.context() as dying, suppress(KeyboardInterrupt):
            dying.setattr(Path, "write_text", killed)
            Traffic(tmp_path).close()
        Traffic(tmp_path).close()
        assert (tmp_path / ".gitignore").read_text() == "*\n"


def test_a_table_is_on_the_disk_before_its_journal_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced, force = list[tuple[Path, int]](), os.fsync

    def noted(number: int) -> None:
        force(number)
        place = Path(os.readlink(f"/proc/self/fd/{number}"))
        forced.append((place, len(list(tmp_path.glob(".*.jsonl")))))

    log = Traffic(tmp_path)
    monkeypatch.setattr(os, "fsync", noted)
    log_all(log, served("Why?"))
    assert forced == [(tables(tmp_path)[0], 1), (tmp_path, 1)]
    assert not list(tmp_path.glob(".*.jsonl"))
