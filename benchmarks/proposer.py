"""Time the proposer of `citer.vllm` without vLLM: the SLM's steps, and the Python around them.

python -m benchmarks.proposer       # the SLM of the CPU pair, 8 and 32 requests, drafts of 16
"""

from dataclasses import replace
from time import perf_counter

import numpy as np
import torch

from benchmarks.pairs import PROMPT, Subject, make_subject
from citer.models.router import Router
from citer.rule import Rule
from citer.vllm.drafting import Drafter, Row

CAP, VISITS = 16, 12
RULE = Rule.parse("risk 0 audit 0.1")  # never due: each visit takes CAP steps


class Stopwatch:
    """Adds up the seconds spent in a function."""

    def __init__(self, owner: object, name: str) -> None:
        self.seconds = 0.0
        self._original = getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *args: object, **kwargs: object) -> object:
        begin = perf_counter()
        try:
            return self._original(*args, **kwargs)
        finally:
            self.seconds += perf_counter() - begin


def measure(subject: Subject, requests: int) -> tuple[float, float]:
    """Return the seconds of an SLM step, and those of the Python around it, per step."""
    pair = replace(subject.pair, eos_ids=(0,))
    router = Router({"stand": subject.head, "agree": subject.head})
    drafter = Drafter(pair, router, requests, PROMPT + (CAP + 1) * (VISITS + 1))
    examples = list(subject.examples(requests).values())
    ids = [list(example.prompt_ids) for example in examples]
    _visit(drafter, ids)  # the prompts
    inside = Stopwatch(drafter.lane, "consume")
    steps, begin = drafter.lane.total.forwards, perf_counter()
    for _ in range(VISITS):
        _visit(drafter, ids)
    total, steps = perf_counter() - begin, drafter.lane.total.forwards - steps
    return inside.seconds / steps, (total - inside.seconds) / steps


def _visit(drafter: Drafter, ids: list[list[int]]) -> None:
    """Draft, and keep all drafts but the last, as if the LLM had written another one there."""
    rows = [Row(str(n), np.array(own, np.int32), RULE, CAP, ()) for n, own in enumerate(ids)]
    for own, drafted in zip(ids, drafter.draft(rows), strict=True):
        own += [*drafted.ids[:-1], 1]


def main() -> None:
    torch.manual_seed(0)
    subject = make_subject("cpu-fp32")
    for requests in (8, 32):
        inside, around = measure(subject, requests)
        share = f"{around / inside:.1%} of it"
        print(f"{requests} requests: {inside * 1e3:.2f} ms a step, {around * 1e3:.3f} ms, {share}")


if __name__ == "__main__":
    main()
