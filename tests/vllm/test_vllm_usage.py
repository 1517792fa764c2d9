"""Counts of replies, from vLLM's counts of sequences; without vLLM."""

import json
from dataclasses import dataclass

from prometheus_client import REGISTRY

from citer.vllm.usage import Usage, with_usage


@dataclass
class Steps:
    histogram: list[int]
    num_draft_tokens: int


# Steps of the LLM: the prompt's, one without a draft, and two with 3 drafts each, of which it
# accepted 2 and 3. The answer ended with the last draft.
STEPS = Steps([2, 0, 1, 1], 6)


def spent() -> Usage:
    usage = Usage()
    usage.add([1, 2, 3], None)
    usage.add([4, 5, 6, 7, 8], STEPS)
    return usage


def test_a_reply_has_the_steps_of_the_llm_and_what_became_of_the_drafts() -> None:
    assert spent().fields == {"llm_steps": 4, "drafted": 6, "rejected": 1}


def test_choices_add_up() -> None:
    both = Usage()
    both.include(spent())
    both.include(spent())
    assert both == Usage(tokens=16, llm_steps=8, drafted=12, rejected=2)


def test_counters_rise_by_a_request() -> None:
    def values() -> list[float]:
        names = ("requests", "llm_steps", "drafted", "rejected")
        tokens = [REGISTRY.get_sample_value("citer_tokens_total", {"model": m}) for m in BOTH]
        counts = [REGISTRY.get_sample_value(f"citer_{name}_total") for name in names]
        return [value or 0.0 for value in counts + tokens]

    before = values()
    spent().count()
    risen = [after - earlier for after, earlier in zip(values(), before, strict=True)]
    assert risen == [1, 4, 6, 1, 5, 3]


BOTH = ("slm", "llm")


def test_only_the_last_event_of_a_stream_gets_the_counts() -> None:
    delta = 'data: {"choices":[{"text":"\\"choices\\":[]"}],"usage":{"total_tokens":5}}\n\n'
    last = 'data: {"choices":[],"usage":{"total_tokens":5,"x":"ü"}}\n\n'
    for event in (delta, 'data: {"choices":[]}\n\n', "data: [DONE]\n\n"):
        assert with_usage(event, spent()) == event
    changed = with_usage(last, spent())
    assert changed.startswith("data: ")
    assert changed.endswith("\n\n")
    usage = json.loads(changed.removeprefix("data: "))["usage"]
    assert usage == {"total_tokens": 5, "x": "ü", "citer": spent().fields}
