"""Verdicts on shadow answers: a client may send what takes a minute to judge."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from citer.errors import InputError
from citer.rule import LLM
from citer.serving.deployment import Reply
from citer.serving.server.metrics import Metrics
from citer.serving.server.service import Service, Settings, _verdict
from citer.serving.server.shadows import WAITING


def test_a_request_is_dropped_if_too_many_verdicts_wait() -> None:
    registry = CollectorRegistry()
    release: Any = SimpleNamespace(observer=None)
    service = Service(Settings("tiny", 1, 30.0), None, release, Metrics(registry))  # type: ignore[arg-type]
    answer: Any = SimpleNamespace(truncated=False)
    form = SimpleNamespace(rule="score 0.5", moved=lambda _: 1)
    call: Any = SimpleNamespace(release=release, form=form, text=lambda _: "4")
    with ThreadPoolExecutor(1) as service._observing:
        service._verdicts = WAITING  # no judge is called: there is none
        service._shadowed(call, Reply(None, answer, "4"), {LLM: answer})  # type: ignore[arg-type]
    assert registry.get_sample_value("citer_shadowed_total", {"verdict": "dropped"}) == 1


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
