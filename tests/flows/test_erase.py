"""`citer erase`: rows leave the log, and their texts DVC's cache and its remote."""

import html
import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import markupsafe
import pytest
from dvc_data.hashfile.db import HashFileDB

from citer.cli import main as cli
from citer.data.problems import as_problem, write_problems
from citer.errors import TemporaryError
from citer.serving.erase import Texts
from citer.serving.log import Traffic
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table, table_metadata
from flows import erase as erasing
from flows.dvc_commands import dvc, file_md5
from flows.erase import erase
from tests.flows.project import change_params, commit
from tests.served import served, write_served

LOG, OUT, CACHE = Path("data/own/log"), Path("data/own/out"), Path(".dvc/cache/files/md5")
MINE, PAGE = Path("data/own/mine.jsonl"), Path("data/own/page.html")
NAME = "Zoë Quux <zoe@example.org>"
ANN = {"user": "ann"}

pytestmark = pytest.mark.usefixtures("checkout")


def call(*arguments: str) -> int:
    return cli.call(["erase", *arguments])


def questions(file: str) -> list[str]:
    return [row["question"] for row in read_table(LOG / file, AUDITED).to_pylist()]


def objects(store: Path) -> set[str]:
    return {file.parent.name + file.name for file in store.rglob("*") if file.is_file()}


def written(*rows: dict[str, Any]) -> None:
    """Write the output of a stage that has the questions of these rows."""
    OUT.mkdir(exist_ok=True)
    own = {"reference": None, "answer": "4", "source": "traffic", "split": "sft"}
    write_problems(
        OUT / "sft.parquet", [as_problem(r | own | {"written_by": None}) for r in rows], {}
    )


@pytest.fixture
def remote(checkout: Path, tmp_path: Path) -> Path:
    """A log, an output and two files that a version of DVC has, in its cache and in a remote."""
    LOG.mkdir()
    said = {"messages": [{"role": "system", "content": "You are a helpful assistant. " * 2}]}
    mine = [
        served("Who am I?", request="chatcmpl-1", **ANN, **said),
        served("And I?", completion=f"You are {NAME}", request="chatcmpl-2", **ANN),
    ]
    others = [served(f"What is {n}?", user="bob", completion="2 + 2", **said) for n in range(3)]
    write_served(f"{LOG}/a.parquet", [*mine, *others])
    write_served(f"{LOG}/b.parquet", others[:1])
    written(mine[0], others[0])
    PAGE.write_text(f"<h1>{NAME.replace('<', '&lt;').replace('>', '&gt;')}</h1>You are {NAME}")
    MINE.write_text('{"problem": "Who?", "solution": "2 + 2"}\n')
    dvc("remote", "add", "--default", "store", str(tmp_path / "store"))
    dvc("add", *map(str, (LOG, OUT, PAGE, MINE)))
    dvc("push")
    return tmp_path / "store/files/md5"


def test_the_rows_of_a_user_leave_the_log_the_cache_and_the_remote(
    remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamp = table_metadata(LOG / "a.parquet")
    assert len(objects(CACHE)) == len(objects(remote)) == 7
    assert call("--user", "ann", "--log", str(LOG)) == 0
    assert questions("a.parquet") == [f"What is {n}?" for n in range(3)]
    assert questions("b.parquet") == ["What is 0?"]
    assert table_metadata(LOG / "a.parquet") == stamp
    assert stat.S_IMODE((LOG / "a.parquet").stat().st_mode) == 0o600
    left = {file.read_bytes() for file in CACHE.rglob("*") if file.is_file()}
    assert left == {(LOG / "b.parquet").read_bytes(), MINE.read_bytes()}
    assert objects(CACHE) == objects(remote)
    out = capsys.readouterr().out
    for name in ("DVC's cache", "DVC's remote store"):
        assert out.count(f"{name}: ") == 6
        assert f"{name}: 5 of 7 objects erased\n" in out
    assert f"{LOG}: 2 rows erased\n{LOG}.dvc: names the earlier rows" in out
    assert f"{OUT}/sft.parquet: has a text of them\n" in out
    assert f"{PAGE}: has a text of them\n" in out
    assert "Not erased: what the SLM and the heads" in out
    assert str(MINE) not in out

    written()  # as a run would
    PAGE.unlink()
    assert call("--user", "ann", "--log", str(LOG)) == 0
    out = capsys.readouterr().out
    assert f"{LOG}: 0 rows erased\n" in out
    assert "DVC's cache: 0 of 2 objects erased\nDVC's remote store: 0 of 2 objects" in out
    assert "has a text" not in out


def test_what_is_left_is_a_version_that_another_clone_pulls(remote: Path) -> None:
    assert call("--user", "ann", "--log", str(LOG)) == 0
    written(served("What is 0?"))
    dvc("add", *map(str, (LOG, OUT)))
    dvc("push", str(LOG), str(OUT), str(MINE))
    kept = (LOG / "a.parquet").read_bytes()
    for file in (*LOG.glob("*.parquet"), *(file for file in CACHE.rglob("*") if file.is_file())):
        file.unlink()
    dvc("pull", str(LOG), str(OUT), str(MINE))
    assert (LOG / "a.parquet").read_bytes() == kept


def test_one_request_of_a_user_is_erased_also_from_a_journal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    change_params("prepare", traffic=[{"path": str(LOG), "most": 10}])
    log = Traffic(LOG)
    for number in (1, 2):
        log.put("{}", "risk 0.9", served(f"Why {number}?", request=f"chatcmpl-{number}", **ANN))
    os.close(log._lock)  # as if it was killed
    assert [*LOG.glob(".*.jsonl")]
    assert call("--request", "chatcmpl-1") == 0
    assert f"{LOG}: 1 rows erased" in capsys.readouterr().out
    assert not [*LOG.glob(".*.jsonl")]
    [table] = LOG.glob("*.parquet")
    assert questions(table.name) == ["Why 2?"]


def test_the_same_question_of_another_user_stays_and_a_line_says_so(
    remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_served(f"{LOG}/c.parquet", [served("Who  am I?", user="bob")])
    assert call("--user", "ann", "--log", str(LOG)) == 0
    assert questions("c.parquet") == ["Who  am I?"]
    out = capsys.readouterr().out
    assert f"{LOG}/c.parquet: has a text of them\n" in out
    assert "If others asked the same, their copies count, too." in out


def test_a_log_that_a_server_writes_is_refused_in_one_line(
    remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = objects(CACHE), (LOG / "a.parquet").read_bytes()
    log = Traffic(LOG)
    assert call("--user", "ann", "--log", str(LOG)) == 2
    log.close()
    assert capsys.readouterr().err == (
        f"citer: {LOG}: a server logs to it; expected none, stop it first\n"
    )
    assert (objects(CACHE), (LOG / "a.parquet").read_bytes()) == before


def test_a_folder_that_is_no_log_is_refused_and_keeps_its_files(
    remote: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = [tmp_path / "home" / name for name in (".empty.jsonl", ".history.jsonl")]
    hidden[0].parent.mkdir()
    for file in hidden:
        file.touch()
    assert call("--user", "ann", "--log", str(tmp_path / "home")) == 2
    assert capsys.readouterr().err.endswith("home: expected a folder of `citer serve --log`\n")
    (tmp_path / "home" / "letter.txt").write_text("Dear Ann")
    assert call("--user", "ann", "--log", str(tmp_path / "home")) == 2
    assert "letter.txt: not of a log, expected a folder" in capsys.readouterr().err
    assert all(file.exists() for file in hidden)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "citer erase: expected either --request ID or --user KEY"),
        (["--user", "a", "--request", "b"], "expected either --request ID or --user KEY"),
        (["--user", "ann"], "prepare.traffic: no folder; expected one, or --log FOLDER"),
        (["--user", "a", "--log", "no"], "no: expected a folder of `citer serve --log`"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def delete_some(count: int) -> Callable[[HashFileDB, str], None]:
    """Return a `delete` that kills its process after so many calls."""
    numbers = iter(range(count))

    def delete(store: HashFileDB, oid: str) -> None:
        store.fs.remove(store.oid_to_path(oid)) if next(numbers, None) is not None else die()

    return delete


@pytest.mark.parametrize("deleted", [0, 1, 4, 7, 100])
def test_a_killed_call_is_repeated(
    remote: Path, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 10 objects, it is killed before it writes the log."""
    if not (child := os.fork()):
        monkeypatch.setattr(HashFileDB, "delete", delete_some(deleted))
        monkeypatch.setattr(erasing, "remove_rows", die)
        erase("user", "ann", [LOG])
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    erase("user", "ann", [LOG])
    assert len(questions("a.parquet")) == 3
    assert len(objects(CACHE)) == len(objects(remote)) == 2


def test_a_remote_that_does_not_answer_leaves_the_log_to_a_repeat(remote: Path) -> None:
    dvc("remote", "add", "other", "http://127.0.0.1:9/dvc")
    with pytest.raises(TemporaryError, match=r"^DVC's remote other: .*; repeat it$"):
        erase("user", "ann", [LOG])
    assert len(questions("a.parquet")) == 5


def test_worktrees_are_searched_and_weights_are_not(
    remote: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(".retrain/2026-01-01-0000/data")
    folder.mkdir(parents=True)
    (folder / "answers.json").write_text(json.dumps([f"So: You are {NAME}"]))
    (folder / "torn.parquet").write_bytes(b"PAR1 and no more")
    (folder / "weights").write_bytes(b"\0" + f"You are {NAME}".encode())
    commit(Path())
    assert call("--request", "chatcmpl-2", "--log", str(LOG)) == 0
    out = capsys.readouterr().out
    found = [line for line in out.splitlines() if line.startswith(str(folder))]
    assert [line.partition(":")[0] for line in found] == [
        f"{folder}/answers.json",
        f"{folder}/torn.parquet",
    ]
    assert len(questions("a.parquet")) == 4


def test_a_short_question_that_is_a_word_of_tables_erases_nothing_else(remote: Path) -> None:
    """Its text stands in columns such as `split` and `answer`, and in the JSON of a report."""
    report, asked = OUT / "report.json", served("test", user="eve", request="chatcmpl-9")
    report.write_text('{"split": "test", "question": "Who?"}')
    (OUT / "asked.json").write_text('{"question": "test"}')
    write_served(f"{LOG}/c.parquet", [asked])
    dvc("add", str(OUT), str(LOG))
    before, rows = objects(CACHE), file_md5(LOG / "c.parquet")
    assert call("--user", "eve", "--log", str(LOG)) == 0
    gone = {name for name in before - objects(CACHE) if not name.endswith(".dir")}
    assert gone == {file_md5(OUT / "asked.json"), rows}


def test_a_quoted_question_is_found_as_both_templates_write_it(remote: Path) -> None:
    question = """Where's the "Quux" that Zoë has lost?"""
    write_served(f"{LOG}/c.parquet", [served(question, user="eve")])
    texts = Texts("user", "eve", read_table(LOG / "c.parquet", AUDITED).to_pylist())
    for spelling in (html.escape(question), str(markupsafe.escape(question))):
        PAGE.write_text(f"<p>{spelling}</p>")
        assert texts.held_by(PAGE)


def test_on_a_machine_that_only_serves_the_rows_are_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Path("params.yaml").read_text()
    (tmp_path / "serving/log").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "serving")
    Path("params.yaml").write_text(settings)
    write_served("log/a.parquet", [served("Who am I?", **ANN), served("And you?")])
    assert call("--user", "ann", "--log", "log") == 0
    rows = read_table(Path("log/a.parquet"), AUDITED).to_pylist()
    assert [row["question"] for row in rows] == ["And you?"]
    assert sorted(file.name for file in Path().iterdir()) == ["log", "params.yaml"]
    assert "log: 1 rows erased" in capsys.readouterr().out
