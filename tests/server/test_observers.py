"""The log and the keeper of a served release, and what they say at the start."""

import json
import math
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from citer.errors import InputError
from citer.models.pair import Pair
from citer.serving.deployment import Reply
from citer.serving.log import Traffic
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Release
from citer.storage.schema import AUDITED
from citer.storage.tables import read_json, read_table, table_metadata, write_json
from tests.flows.servers import until
from tests.served import served
from tests.server.promised import (
    VERSION,
    ask,
    observing,
    releases,
    shadowing,
    watched,
    write_promised,
)
from tests.server.running import QUESTIONS, RULE, deployed, running


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def shown(release: Release, name: str) -> float:
    """Return a value about the promise as `/metrics` shows it."""
    metrics = Metrics(CollectorRegistry())
    metrics.show(0, 0, release)
    value = metrics.registry.get_sample_value(f"citer_promise_{name}")
    assert value is not None
    return value


def test_a_release_says_what_is_promised(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release_of, _ = observing(tmp_path)
    made = release_of(VERSION, write_promised(kin, tmp_path / "r", same=0.3), deployed(kin))
    assert made.rule == RULE
    assert made.promise == "kept"
    promise = "a risk of at most 0.3 (0.02 with a right answer) at confidence 0.95 is watched"
    assert said(capsys) == f"tiny/1: {promise}; `{RULE}` is in force"
    assert shown(made, "e_value") == 1
    assert shown(made, "lapsed") == 0


def test_a_server_of_longer_answers_says_what_was_tested(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release_of, _ = observing(tmp_path)
    limit = deployed(kin).engine.limits.max_new_tokens
    for tested, warned in ((limit, False), (limit - 1, True)):
        bundle = write_promised(kin, tmp_path / f"{tested}", max_new_tokens=tested)
        assert release_of(VERSION, bundle, deployed(kin)).keeper
        found = f"at most {tested} tokens, here they may have {limit} (answer.max_new_tokens)"
        assert (found in said(capsys)) == warned


def test_a_release_that_cannot_be_watched_says_why(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release_of, _ = observing(tmp_path)
    bundle = write_promised(kin, tmp_path / "r")
    made = release_of(VERSION, bundle, deployed(kin, rule=RULE.parse("risk 0.4")))
    assert (made.keeper, made.promise, str(made.rule)) == (None, None, "risk 0.4")
    said_once = f"`risk 0.4` is not the registered rule, `{RULE}`"
    assert said(capsys) == f"tiny/1: no promise is watched: {said_once}"
    assert math.isnan(shown(made, "step"))
    write_promised(kin, bundle, path=[str(RULE), "score 0.5 by gone"])
    assert release_of(VERSION, bundle, deployed(kin)).keeper is None
    assert "no promise is watched: rule `score 0.5 by gone`: no scorer `gone`" in said(capsys)
    card = read_json(bundle / "router.json")
    write_json(bundle / "router.json", {k: v for k, v in card.items() if k != "promise"})
    assert release_of(VERSION, bundle, deployed(kin)).keeper is None
    assert "no `promise` in router.json: its rule is not certified" in said(capsys)


def test_without_shadow_answers_nothing_is_said_opened_or_shown(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = releases(shadowing(shadow=0.0))
    made = off.release(VERSION, write_promised(kin, tmp_path / "r"), deployed(kin))
    assert (made.keeper, made.observer, said(capsys)) == (None, None, "")
    assert math.isnan(shown(made, "step"))


def test_evidence_that_cannot_be_written_is_no_release(kin: Pair, tmp_path: Path) -> None:
    (tmp_path / "evidence.db").write_text("no database")
    with pytest.raises(InputError, match=r"evidence.db: no evidence can be kept here"):
        watched(kin, tmp_path)


def test_a_step_that_another_server_tells_of_makes_tables_here_too(
    kin: Pair, tmp_path: Path
) -> None:
    log = Traffic(tmp_path / "log")
    made, told = watched(kin, tmp_path, log)
    assert made.keeper
    log.put("{}", str(RULE), served("Why?"))
    while made.rule == RULE:
        number = made.keeper.evidence.add(VERSION, str(RULE), True, 0.02)
        assert made.keeper.evidence.claim(number)
        made.keeper.refresh()
    [table] = (tmp_path / "log").glob("*.parquet")
    assert read_table(table, AUDITED)["question"].to_pylist() == ["Why?"]
    assert told.empty()


def test_rows_are_lost_and_counted_if_too_many_wait(
    kin: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.server.service.UNSEEN", 2)
    log, goes_on = Traffic(tmp_path / "log"), Event()
    seen: list[Reply] = []

    def slow(reply: Reply) -> None:
        assert goes_on.wait(60)
        seen.append(reply)

    with running(deployed(kin), observer=slow) as server:
        server.shelf.traffic = log
        for number in range(5):
            ask(server, number)
        goes_on.set()
        until(lambda: len(seen) >= 2, 30)
        assert log.counts == {"lost": 3}
        ask(server, 5)
        until(lambda: len(seen) == 3, 30)
    assert log.counts == {"lost": 3}


def test_each_release_has_its_own_log(kin: Pair, tmp_path: Path) -> None:
    """The answers of a version that is being replaced stay its own."""
    log = Traffic(tmp_path / "log")
    release_of, _ = observing(tmp_path, log, shadow=0.0)
    bundle = write_promised(kin, tmp_path / "bundle")
    with running(release_of(VERSION, bundle, deployed(kin))) as server:
        server.service.metrics.watch_log(log.counts)
        ask(server, 0)
        server.shelf.next = release_of("tiny/2", bundle, deployed(kin, seed=1))
        until(lambda: server.service.release.version == "tiny/2", 30)
        ask(server, 1)
        ask(server, 2)
        until(lambda: server.metric("citer_traffic_rows", verdict="logged") == 3, 30)
    log.close()
    tables = {
        table_metadata(file)["version"]: (read_table(file, AUDITED), table_metadata(file))
        for file in (tmp_path / "log").glob("*.parquet")
    }
    rows = {version: len(table) for version, (table, _) in tables.items()}
    assert rows == {"tiny/1": 1, "tiny/2": 2}
    table, stamp = tables["tiny/1"]
    assert table["question"].to_pylist() == QUESTIONS[:1]
    assert stamp["rules"] == {str(RULE): 1}
    assert json.loads(json.dumps(kin.identity)).items() <= stamp.items()
