"""Verdicts on shadow answers: a client may send what takes a minute to judge."""

import asyncio
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from citer.decoding.answer import Answer, Request
from citer.decoding.policy import LLM_ALONE
from citer.errors import InputError
from citer.models.pair import Pair
from citer.rule import LLM, Rule
from citer.serving.deployment import Reply
from citer.serving.server.metrics import Metrics
from citer.serving.server.service import Service, Settings, _verdict
from tests.server.promised import ask, settled, watched
from tests.server.running import running

ANSWER = Answer("0", LLM_ALONE, (1,), (), (), False)


def test_requests_are_dropped_if_too_many_wait_for_a_verdict(
    kin: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.server.service.WAITING", 2)
    release, _ = watched(kin, tmp_path)
    goes_on = Event()
    assert release.keeper
    release.keeper.judge = lambda *_: goes_on.wait(60) and None
    with running(release) as server:
        for number in range(5):
            ask(server, number)
        settled(server, 3)
        assert server.metric("citer_shadowed_total", verdict="dropped") == 3
        goes_on.set()
        settled(server, 5)
        assert server.metric("citer_shadowed_total", verdict="uncounted") == 2


def test_a_version_that_was_replaced_gets_no_shadow_answer() -> None:
    release: Any = SimpleNamespace(deployment=SimpleNamespace(policy=None))
    call: Any = SimpleNamespace(request=Request("0", (1,)), release=release)
    metrics = Metrics(CollectorRegistry())
    service = Service(Settings("tiny", 1, 30.0), None, None, metrics)  # type: ignore[arg-type]
    service._alone = asyncio.Lock()
    assert asyncio.run(service._again(call, [LLM])) == {}


@pytest.mark.parametrize(("fails", "dropped"), [(False, 3), (True, 5)])
def test_a_burst_loses_its_surplus_and_no_row(
    monkeypatch: pytest.MonkeyPatch, fails: bool, dropped: int
) -> None:
    service = Service(Settings("tiny", 1, 30.0), None, None, Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    seen, goes_on = list[Reply](), asyncio.Event()

    async def again(*_: object) -> dict[Rule, Answer]:
        assert not fails
        await goes_on.wait()
        return {}

    async def burst() -> float:
        service._shadowing = set()
        for number in range(5):
            form = SimpleNamespace(id=f"{number}", moved=None)
            call: Any = SimpleNamespace(problem="?", release=None, text=str, form=form, user=None)
            call.release = SimpleNamespace(observer=None)
            service._answered(call, ANSWER)
        await asyncio.sleep(0.01)
        found: float = service.metrics.shadowed.labels("dropped")._value.get()
        goes_on.set()
        await asyncio.gather(*service._shadowing)
        return found

    monkeypatch.setattr("citer.serving.server.service.WAITING", 2)
    monkeypatch.setattr("citer.serving.server.service._drawn", lambda _: [LLM])
    monkeypatch.setattr(service, "_again", again)
    monkeypatch.setattr(service, "_see", lambda _, reply: seen.append(reply))
    assert asyncio.run(burst()) == dropped
    assert sorted(str(reply.request) for reply in seen) == [*"01234"]


def test_evidence_that_cannot_be_written_is_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def take(*_: object) -> None:
        raise InputError("evidence.db: no evidence can be kept here: disk is full")

    answer: Any = SimpleNamespace(truncated=False)
    release = SimpleNamespace(keeper=SimpleNamespace(take=take))
    form = SimpleNamespace(rule="score 0.5")
    call: Any = SimpleNamespace(release=release, form=form, text=lambda _: "4")
    assert _verdict(call, Reply(None, answer, "4"), {LLM: answer}) == "dropped"  # type: ignore[arg-type]
    [record] = caplog.records
    assert record.getMessage().endswith("no evidence can be kept here: disk is full")
    assert not record.exc_info
