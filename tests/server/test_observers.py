"""The log and the watch of a served release, and what `/metrics` says of both."""

import json
import math
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from citer.config.params import SamplingParams
from citer.models.bundle import identity, write_bundle
from citer.models.pair import Pair
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.serving.drift import WINDOW
from citer.serving.log import Traffic
from citer.serving.server.releases import Observers, Release
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table, table_metadata
from tests.flows.servers import until
from tests.server.running import QUESTIONS, RULE, Running, asked, deployed, running

BEFORE = {"answers": 1000, "audited": 20_000, "disagreed": 400, "pairs": 380_000}
AGREEMENT = BEFORE | {"overdispersion": 0.0}
VERSION = "tiny/1"
Told = Queue[tuple[str, dict[str, Any]]]


@pytest.fixture
def bundle(kin: Pair, tmp_path: Path) -> Path:
    """The folder of a registered router."""
    rule = {"visit": RULE.visit, "at": RULE.at, "audit": RULE.audit}
    card = identity(kin) | {"threshold": {"rule": rule}, "agreement": AGREEMENT}
    write_bundle(tmp_path / "bundle", deployed(kin).router, card)
    return tmp_path / "bundle"


def made(
    traffic: Traffic | None = None, sampler: Sampler = ALL_GREEDY
) -> tuple[Observers, CollectorRegistry, Told]:
    registry, told = CollectorRegistry(), Told()
    return Observers(registry, sampler, traffic, lambda *low: told.put(low)), registry, told


def ask(server: Running, number: int, **fields: Any) -> None:
    server.client().chat.completions.create(**asked(QUESTIONS[number], **fields))


@pytest.mark.parametrize("sampled", [False, True])
def test_answers_by_the_rule_and_sampled_as_evaluated_are_watched(
    kin: Pair, bundle: Path, sampled: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler = Sampler(SamplingParams(temperature=0.7)) if sampled else ALL_GREEDY
    observers, registry, _ = made(sampler=sampler)
    deployment = deployed(kin)
    with running(deployment, observers=observers(VERSION, bundle, deployment)) as server:
        for number in range(3):
            ask(server, number)
        ask(server, 3, extra_body={"citer": {"rule": "every 2 audit 1"}})
        ask(server, 4, temperature=0.7, seed=4)
        ask(server, 5, temperature=0.7, top_p=0.9, seed=5)
    assert observers.watch
    assert observers.watch.seen.answers == (1 if sampled else 3)
    seen, limit = (registry.get_sample_value(f"citer_agreement{end}") for end in ("", "_limit"))
    assert seen == observers.watch.seen.agreement
    assert limit is not None
    assert 0 < limit < 0.98
    assert registry.get_sample_value("citer_agreement_alarm") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("tiny/1: the agreement is watched, 98.0% before")


def test_a_release_that_cannot_be_watched_says_why(
    kin: Pair, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observers, registry, _ = made()
    assert observers(VERSION, bundle, deployed(kin, rule=RULE.parse("risk 0.5"))) == []
    said = "tiny/1: the agreement is not watched: `risk 0.5` has no audit, so the models are not"
    assert " ".join(capsys.readouterr().out.split()).startswith(said)
    assert math.isnan(registry.get_sample_value("citer_agreement") or 0)


def test_each_release_has_its_own_log_and_watch(kin: Pair, bundle: Path, tmp_path: Path) -> None:
    """The answers of a version that is being replaced stay its own."""
    log = Traffic(tmp_path / "log")
    observers, registry, _ = made(log)
    first = deployed(kin)
    with running(first, observers=observers(VERSION, bundle, first)) as server:
        ask(server, 0)
        second = deployed(kin, seed=1)
        server.shelf.next = Release("tiny/2", second, observers("tiny/2", bundle, second))
        until(lambda: server.service.release.version == "tiny/2", 30)
        ask(server, 1)
        ask(server, 2)
    log.close()
    assert observers.watch
    assert observers.watch.seen.answers == 2
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
    assert json.loads(json.dumps(identity(kin))).items() <= stamp.items()
    assert registry.get_sample_value("citer_traffic_rows", {"verdict": "logged"}) == 3


def test_a_row_names_its_reply_and_who_asked(kin: Pair, bundle: Path, tmp_path: Path) -> None:
    log = Traffic(tmp_path / "log")
    observers, _, _ = made(log)
    deployment = deployed(kin)
    named = ({"user": "ann", "safety_identifier": "a1"}, {"safety_identifier": "b2"}, {})
    with running(deployment, observers=observers(VERSION, bundle, deployment)) as server:
        chats = server.client().chat.completions
        whole = [chats.create(**asked(QUESTIONS[n], **who)).id for n, who in enumerate(named)]
        streamed = {each.id for each in chats.create(**asked(QUESTIONS[3], stream=True))}
    log.close()
    [file] = (tmp_path / "log").glob("*.parquet")
    table = read_table(file, AUDITED)
    assert table["request"].to_pylist() == [*whole, *streamed]
    assert table["user"].to_pylist() == ["ann", "b2", None, None]
    assert table["reference"].null_count == 4


def test_an_alarm_is_told_with_its_version_after_the_rows_are_in_tables(
    kin: Pair, bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Traffic(tmp_path / "log")
    observers, registry, told = made(log)
    deployment = deployed(kin)
    with running(deployment, observers=observers(VERSION, bundle, deployment)) as server:
        ask(server, 0)
        assert observers.watch
        until(lambda: log.counts["logged"], 30)
        for _ in range(WINDOW):
            observers.watch.count(20, 3)
        version, found = told.get(timeout=30)
        assert [*(tmp_path / "log").glob("*.parquet")]
    log.close()
    assert (version, found["answers"]) == (VERSION, WINDOW)
    assert registry.get_sample_value("citer_agreement_alarm") == 1
    [warning] = [each.getMessage() for each in caplog.records]
    assert warning.endswith("in 200 answers, limit 97.0%")
    assert warning.startswith("tiny/1: the agreement is low: 8")
