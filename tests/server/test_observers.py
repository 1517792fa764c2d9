"""The log and the keeper of a served release, and what they say at the start."""

import json
import math
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from citer.errors import InputError
from citer.models.pair import Pair
from citer.serving.log import Traffic
from citer.serving.server.releases import Observers
from citer.storage.schema import AUDITED
from citer.storage.tables import read_json, read_table, table_metadata, write_json
from tests.flows.servers import until
from tests.server.promised import VERSION, ask, observing, shadowing, write_promised
from tests.server.running import QUESTIONS, RULE, deployed, running


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_release_says_what_is_promised(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observers, registry, _ = observing(tmp_path)
    made = observers(VERSION, write_promised(kin, tmp_path / "r", same=0.3), deployed(kin))
    assert made.rule == RULE
    assert made.promise == "kept"
    promise = "a risk of at most 0.3 (0.02 with a right answer) at confidence 0.95 is watched"
    assert said(capsys) == f"tiny/1: {promise}; `{RULE}` is in force"
    assert registry.get_sample_value("citer_promise_e_value") == 1
    assert registry.get_sample_value("citer_promise_lapsed") == 0


def test_a_release_that_cannot_be_watched_says_why(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observers, registry, _ = observing(tmp_path)
    bundle = write_promised(kin, tmp_path / "r")
    made = observers(VERSION, bundle, deployed(kin, rule=RULE.parse("risk 0.4")))
    assert (made.keeper, made.promise, str(made.rule)) == (None, None, "risk 0.4")
    said_once = f"`risk 0.4` is not the registered rule, `{RULE}`"
    assert said(capsys) == f"tiny/1: no promise is watched: {said_once}"
    assert math.isnan(registry.get_sample_value("citer_promise_step") or 0)
    write_promised(kin, bundle, path=[str(RULE), "score 0.5 by gone"])
    assert observers(VERSION, bundle, deployed(kin)).keeper is None
    assert "no promise is watched: rule `score 0.5 by gone`: no scorer `gone`" in said(capsys)
    card = read_json(bundle / "router.json")
    write_json(bundle / "router.json", {k: v for k, v in card.items() if k != "promise"})
    assert observers(VERSION, bundle, deployed(kin)).keeper is None
    assert "no `promise` in router.json: its rule is not certified" in said(capsys)


def test_without_shadow_answers_nothing_is_said_opened_or_shown(
    kin: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = CollectorRegistry()
    off = Observers(registry, shadowing(shadow=0.0), None, None, lambda *_: None)
    made = off(VERSION, write_promised(kin, tmp_path / "r"), deployed(kin))
    assert (made.keeper, [*made.observers], said(capsys)) == (None, [], "")
    assert registry.get_sample_value("citer_promise_step") is None


def test_evidence_that_cannot_be_written_is_no_release(kin: Pair, tmp_path: Path) -> None:
    observers, _, _ = observing(tmp_path)
    (tmp_path / "evidence.db").write_text("no database")
    with pytest.raises(InputError, match=r"evidence.db: no evidence can be kept here"):
        observers(VERSION, write_promised(kin, tmp_path / "r"), deployed(kin))


def test_each_release_has_its_own_log(kin: Pair, tmp_path: Path) -> None:
    """The answers of a version that is being replaced stay its own."""
    log = Traffic(tmp_path / "log")
    observers, registry, _ = observing(tmp_path, log, shadow=0.0)
    bundle = write_promised(kin, tmp_path / "bundle")
    with running(observers(VERSION, bundle, deployed(kin))) as server:
        ask(server, 0)
        server.shelf.next = observers("tiny/2", bundle, deployed(kin, seed=1))
        until(lambda: server.service.release.version == "tiny/2", 30)
        ask(server, 1)
        ask(server, 2)
    log.close()
    tables = {
        table_metadata(file)["version"]: (read_table(file, AUDITED), table_metadata(file))
        for file in (tmp_path / "log").glob("*.parquet")
    }
    assert {version: len(table) for version, (table, _) in tables.items()} == {
        "tiny/1": 1,
        "tiny/2": 2,
    }
    table, stamp = tables["tiny/1"]
    assert table["question"].to_pylist() == QUESTIONS[:1]
    assert stamp["rules"] == {str(RULE): 1}
    assert json.loads(json.dumps(kin.identity)).items() <= stamp.items()
    assert registry.get_sample_value("citer_traffic_rows", {"verdict": "logged"}) == 3
