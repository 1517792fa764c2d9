"""Shadow answers of a running server: what they change, and what they may not."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from citer.models.pair import Pair
from citer.models.served import ServedModel
from citer.models.served import Server as LlmServer
from citer.rule import LLM, SLM
from citer.serving.log import Traffic
from citer.serving.promise import Promise, Standing
from citer.serving.server.fields import Chat, read
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Release
from citer.serving.server.service import Service, Settings
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table
from tests.completions import Completions, serving
from tests.flows.servers import until
from tests.server.promised import (
    PATH,
    PROMISE,
    STRICTER,
    VERSION,
    alone,
    ask,
    ending,
    losses,
    observing,
    settled,
    shadowed,
    watched,
    write_promised,
)
from tests.server.running import RULE, Running, asked, deployed, routing, running


@pytest.fixture
def own(kin: Pair) -> Pair:
    return ending(kin)


def replies(server: Running) -> list[tuple[str, dict[str, Any]]]:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: ask(server, n), range(12)))
    stream = ask(server, 0, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    return [(text, {}), *((each.choices[0].message.content, routing(each)) for each in found)]


def test_shadow_answers_change_no_reply_and_no_metric_of_clients(own: Pair, tmp_path: Path) -> None:
    counted = "citer_visits_total"
    with running(deployed(own)) as server:
        expected, visits = replies(server), server.metric(counted)
        assert server.client().models.list().data[0].model_extra["promise"] is None  # type: ignore[index]
    release, told = watched(own, tmp_path, false_alarms=1e9)
    with running(release) as server:
        assert replies(server) == expected
        settled(server, 13)
        assert server.metric(counted) == visits
        assert server.metric("citer_shadow_bytes_total")
        [model] = server.client().models.list()
        assert (model.model_extra or {})["promise"] == "kept"
    found = [entry.lost for entry in release.keeper.evidence.after(VERSION)]  # type: ignore[union-attr]
    lost = losses(deployed(own))
    assert sorted(found) == sorted([*lost, *lost[:1]])
    assert True in found
    assert False in found
    assert told.empty()


def test_a_bad_rule_is_revoked_and_stricter_ones_serve(
    own: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Traffic(tmp_path / "log")
    release, told = watched(own, tmp_path, log)
    with running(release) as server:
        seen, served, number = server.service.release.keeper, list[str](), 0
        assert seen
        while (rule := seen.rule) != LLM:
            reply = routing(ask(server, number))
            assert reply["rule"] == str(rule)
            served.append(reply["rule"])
            number += 1
            settled(server, number)
        last = ask(server, 0)
        assert routing(last)["rule"] == str(LLM)
        [model] = server.client().models.list()
        assert model.model_extra == {
            **(model.model_extra or {}),
            "rule": str(LLM),
            "promise": "revoked, step 2",
        }
        assert "citer_promise_step 2.0\n" in httpx.get(f"{server.url}/metrics").text
        assert server.metric("citer_deployed_info", version=VERSION, rule=str(LLM)) == 1
        version, standing, step = told.get(timeout=30)
        assert [*(tmp_path / "log").glob("*.parquet")]
        assert (version, step.before, step.rule) == (VERSION, RULE, STRICTER)
        assert told.get(timeout=30)[2].rule == LLM
    assert [*dict.fromkeys(served)] == PATH[:2]
    again = Standing(Promise(**PROMISE), 20)
    again.take(seen.evidence.after(VERSION))
    assert (again.place, again.steps) == (2, standing.steps)
    said = [each.getMessage().partition(" →")[0] for each in caplog.records]
    assert said == [f"tiny/1: `{rule}`" for rule in PATH[:2]]
    log.close()
    files = (tmp_path / "log").glob("*.parquet")
    rows = [row for file in files for row in read_table(file, AUDITED).to_pylist()]
    assert len(rows) == number + 1
    llm = alone(deployed(own))
    by_rules = [row for row in rows if row["request"] != last.id]
    assert [row["reference"] for row in by_rules] == [llm[row["question"]] for row in by_rules]
    assert None in llm.values()


def test_servers_share_evidence_also_without_a_registry(own: Pair, tmp_path: Path) -> None:
    """A server without requests steps back with the other. Only one of them tells of it."""
    first, one = watched(own, tmp_path)
    second, other = watched(own, tmp_path)
    with running(first) as busy, running(second) as idle:
        idle.shelf.failure = ValueError("the registry is lost")
        for number in range(60):
            if second.rule == STRICTER:
                break
            ask(busy, number)
            settled(busy, number + 1)
        until(lambda: second.rule == first.rule, 30)
        assert routing(ask(idle, 0))["rule"] == str(first.rule) != str(RULE)
        settled(idle, 1)
    assert one.qsize() + other.qsize() == first.keeper.standing.place  # type: ignore[union-attr]


def test_a_verdict_that_takes_long_delays_no_step_of_another_server(
    own: Pair, tmp_path: Path
) -> None:
    release, _ = watched(own, tmp_path)
    keeper, judging, goes_on = release.keeper, Event(), Event()
    assert keeper

    def judge(*_: object) -> None:
        judging.set()
        assert goes_on.wait(60)

    keeper.judge = judge
    with running(release) as server:
        ask(server, 0)
        assert judging.wait(60)
        for _ in range(9):
            keeper.evidence.add(VERSION, str(RULE), True, 0.02)
        try:
            until(lambda: release.rule == STRICTER, 30)
        finally:
            goes_on.set()


@pytest.mark.parametrize(
    "fields",
    [
        {"extra_body": {"citer": {"rule": str(RULE)}}},
        {"temperature": 0.7},
        {"max_tokens": 9},
        {"stop": ["a"]},
    ],
)
def test_requests_unlike_those_of_the_promise_are_not_shadowed(
    own: Pair, tmp_path: Path, fields: dict[str, Any]
) -> None:
    release, _ = watched(own, tmp_path)
    with running(release) as server:
        ask(server, 0, **fields)
        server.client().completions.create(model="tiny", prompt="Why?")
        ask(server, 1)
        settled(server, 1)
    assert shadowed(server) == 1


@pytest.mark.parametrize(("stop", "promised"), [(None, True), ([], True), (["a"], False)])
def test_an_empty_list_of_stop_texts_changes_no_answer(
    own: Pair, stop: list[str] | None, promised: bool
) -> None:
    release, metrics = Release("tiny/1", deployed(own)), Metrics(CollectorRegistry())
    service = Service(Settings("tiny", 1, 30.0), None, release, metrics)  # type: ignore[arg-type]
    body = json.dumps(asked("Why?", stop=stop)).encode()
    assert service.call(read(Chat, body)).promised == promised


def test_a_right_answer_decides_what_counts(own: Pair, tmp_path: Path) -> None:
    """The LLM's answers have no box: they are wrong, and the promise says nothing of them."""
    release, _ = watched(own, tmp_path)
    with running(release) as server:
        for number in range(12):
            ask(server, number, extra_body={"citer": {"answer": "36"}})
        settled(server, 12)
        assert server.metric("citer_shadowed_total", verdict="uncounted") == 12
    assert release.keeper
    assert not release.keeper.evidence.after(VERSION)


def test_without_the_llms_server_there_is_no_evidence_and_the_promise_lapses(
    own: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    with serving(Completions(own.llm, own.tokenizer)) as completions:
        llm = ServedModel(LlmServer(completions.url, ()), "llm", own.llm.card)
        served = deployed(replace(own, llm=llm), rule=SLM)
        release_of, _ = observing(tmp_path)
        bundle = write_promised(own, tmp_path / "bundle", path=[str(SLM), str(LLM)])
        release = release_of(VERSION, bundle, served)
        assert release.keeper
        release.keeper.clock, release.keeper._last = (lambda: now[0]), 0.0
        with running(release) as server:
            completions.dies_after = 0
            for number in range(3):
                assert ask(server, number).choices[0].message.content
            settled(server, 3)
            assert server.metric("citer_shadowed_total", verdict="dropped") == 3
            assert release.promise == "kept"
            now[0] = 24 * 3600 + 1.0
            until(lambda: any("no promise" in each.getMessage() for each in caplog.records), 30)
            [model] = server.client().models.list()
            assert (model.model_extra or {})["promise"] == "lapsed"
            assert server.metric("citer_promise_lapsed") == 1
            completions.dies_after = None
            ask(server, 3)
            settled(server, 4)
            assert release.promise != "lapsed"
    said = [each.getMessage() for each in caplog.records if "no promise" in each.getMessage()]
    assert said == ["tiny/1: no promise: no shadow answer for 24 hours"]
    assert len(release.keeper.evidence.after(VERSION)) <= 1


def test_a_promotion_begins_a_new_promise(own: Pair, tmp_path: Path) -> None:
    release_of, _ = observing(tmp_path)
    bundle = write_promised(own, tmp_path / "bundle")
    with running(release_of(VERSION, bundle, deployed(own))) as server:
        while server.service.release.rule == RULE:
            done = shadowed(server)
            ask(server, done)
            settled(server, done + 1)
        server.shelf.next = release_of("tiny/2", bundle, deployed(own, seed=1))
        until(lambda: server.service.release.version == "tiny/2", 30)
        assert routing(ask(server, 0))["rule"] == str(RULE)


def test_a_clock_that_is_set_back_has_no_influence(
    own: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, _ = watched(own, tmp_path, false_alarms=1e9)
    keeper = release.keeper
    assert keeper
    with running(release) as server:
        for number in range(6):
            day = datetime(2020, 1, 9 - number, tzinfo=UTC)
            monkeypatch.setattr("citer.serving.evidence.now", lambda day=day: f"{day:%F %T}")
            ask(server, number)
            settled(server, number + 1)
    entries = keeper.evidence.after(VERSION)
    assert [each.at for each in entries] == sorted((e.at for e in entries), reverse=True)
    again = Standing(Promise(**PROMISE), 1e9)
    again.take(entries)
    assert again.detector.value == keeper.standing.detector.value
    assert not keeper.lapsed


def test_the_rest_is_dropped_at_the_end(own: Pair, tmp_path: Path) -> None:
    """Replies whose shadow answers wait are logged all the same."""
    log = Traffic(tmp_path / "log")
    release, _ = watched(own, tmp_path, log)
    with running(release) as server, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ask(server, n), range(16)))
    assert log.counts["logged"] == 16
    log.close()
    assert shadowed(server) == 16
