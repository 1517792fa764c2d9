"""Counts of replies, from vLLM's counts of sequences; without vLLM."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from citer.vllm.usage import Usage, count_audits, counted, with_usage


@dataclass
class Steps:
    histogram: list[int]
    per_step_drafted: list[int]
    per_step_accepted: list[int]


# Steps of the LLM: the prompt's, one without a draft, and two with 3 drafts each, of which it
# accepted 2 and 3.
STEPS = Steps([2, 0, 1, 1], [3, 3], [2, 3])
COMPLETE = 9  # tokens, if nothing was cut off


def test_a_reply_has_the_visits_and_what_became_of_the_drafts() -> None:
    usage = Usage.of(COMPLETE, STEPS)
    assert usage.fields == {"llm_tokens": 4, "visits": 4, "drafted": 6, "rejected": 1}


def test_an_end_that_is_cut_off_counts_for_neither_model() -> None:
    assert Usage.of(COMPLETE - 1, STEPS).llm_tokens == 3
    assert Usage.of(4, STEPS).llm_tokens == 0


def outputs() -> AsyncIterator[Any]:
    """A stream of two choices, as vLLM yields it."""

    def output(index: int, token_ids: list[int], steps: Steps | None, finished: bool) -> Any:
        choice = SimpleNamespace(index=index, token_ids=token_ids, spec_decode_metrics=steps)
        return SimpleNamespace(outputs=[choice], finished=finished)

    async def stream() -> AsyncIterator[Any]:
        yield output(0, [1] * 5, None, False)
        yield output(1, [2] * 8, STEPS, False)
        yield output(0, [3] * 4, STEPS, True)

    return stream()


def run(limit: int, hide: bool) -> tuple[Usage, list[Any]]:
    """Read `limit` outputs, then leave."""

    async def read() -> list[Any]:
        seen = []
        async with aclosing(counted(outputs(), reply, hide=hide)) as stream:
            async for output in stream:
                seen.append(output.outputs[0].spec_decode_metrics)
                if len(seen) == limit:
                    break
        return seen

    reply = Usage()
    return reply, asyncio.run(read())


def counters() -> list[float]:
    names = ("requests", "visits", "drafted_tokens", "rejected_tokens")
    tokens = [REGISTRY.get_sample_value("citer_tokens_total", {"model": m}) for m in ("slm", "llm")]
    counts = [REGISTRY.get_sample_value(f"citer_{name}_total") for name in names]
    return [value or 0.0 for value in counts + tokens]


@pytest.mark.parametrize("hide", [True, False])
def test_choices_of_a_reply_are_counted_together(hide: bool) -> None:
    before = counters()
    reply, seen = run(3, hide)
    assert reply == Usage(tokens=17, llm_tokens=7, visits=8, drafted=12, rejected=2)
    assert [after - b for after, b in zip(counters(), before, strict=True)] == [1, 8, 12, 2, 10, 7]
    assert seen == [None, None if hide else STEPS, None if hide else STEPS]


def test_a_request_whose_client_leaves_is_not_counted() -> None:
    before = counters()
    reply, _ = run(2, hide=True)
    assert reply == Usage()
    assert counters() == before


def test_audits_are_counted_once() -> None:
    def verdicts() -> list[float]:
        labels = ({"verdict": verdict} for verdict in ("agreed", "disagreed"))
        values = [REGISTRY.get_sample_value("citer_audited_tokens_total", each) for each in labels]
        return [value or 0.0 for value in values]

    before, seen = verdicts(), dict[str, int]()
    count_audits({"agreed": 5, "disagreed": 1}, seen)
    count_audits({"agreed": 7, "disagreed": 1}, seen)
    assert [after - b for after, b in zip(verdicts(), before, strict=True)] == [7, 1]


SPENT = Usage.of(COMPLETE, STEPS)


def test_only_the_last_event_of_a_stream_gets_the_counts() -> None:
    delta = 'data: {"choices":[{"text":"\\"choices\\":[]"}],"usage":{"total_tokens":5}}\n\n'
    last = 'data: {"choices":[],"usage":{"total_tokens":5,"x":"ü"}}\n\n'
    for event in (delta, 'data: {"choices":[]}\n\n', "data: [DONE]\n\n"):
        assert with_usage(event, SPENT) == event
    changed = with_usage(last, SPENT)
    assert changed.startswith("data: ")
    assert changed.endswith("\n\n")
    usage = json.loads(changed.removeprefix("data: "))["usage"]
    assert usage == {"total_tokens": 5, "x": "ü", "citer": SPENT.fields}
