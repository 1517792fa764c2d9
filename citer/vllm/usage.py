"""What answers cost: in a reply's `usage`, and in counters beside vLLM's own at `/metrics`."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from prometheus_client import Counter

REQUESTS = Counter("citer_requests", "Answers that were completed")
TOKENS = Counter(
    "citer_tokens", "Tokens of completed answers, by the model that wrote them", ["model"]
)
LLM_STEPS = Counter("citer_llm_steps", "Forwards of the LLM that wrote a token of an answer")
DRAFTED = Counter("citer_drafted", "Tokens of the SLM that the LLM has read")
REJECTED = Counter("citer_rejected", "Drafted tokens that did not become part of an answer")
AUDITED = Counter("citer_audited", "Drafted tokens that an audit compared with the LLM's choice")
DISAGREED = Counter("citer_disagreed", "Audited tokens that were not the LLM's choice")


class Steps(Protocol):
    """vLLM's counts of one sequence: `histogram[n]` steps of the LLM accepted n drafted tokens."""

    histogram: list[int]
    num_draft_tokens: int


@dataclass
class Usage:
    """The counts of a request, or of all choices of a reply.

    tokens: of the answer
    llm_steps: forwards of the LLM that wrote a token
    drafted: tokens of the SLM that the LLM has read
    rejected: those of them that did not become part of the answer
    """

    tokens: int = 0
    llm_steps: int = 0
    drafted: int = 0
    rejected: int = 0

    def add(self, token_ids: Sequence[int], steps: Steps | None) -> None:
        """Add tokens of a choice, and its counts if it is complete."""
        self.tokens += len(token_ids)
        if steps:
            accepted = sum(n * count for n, count in enumerate(steps.histogram))
            self.llm_steps += sum(steps.histogram)
            self.drafted += steps.num_draft_tokens
            self.rejected += steps.num_draft_tokens - accepted

    def include(self, other: "Usage") -> None:
        for field, value in asdict(other).items():
            setattr(self, field, getattr(self, field) + value)

    def count(self) -> None:
        """Add a completed request to the counters."""
        by_slm = min(self.tokens, self.drafted - self.rejected)
        REQUESTS.inc()
        TOKENS.labels("slm").inc(by_slm)
        TOKENS.labels("llm").inc(self.tokens - by_slm)
        LLM_STEPS.inc(self.llm_steps)
        DRAFTED.inc(self.drafted)
        REJECTED.inc(self.rejected)

    @property
    def fields(self) -> dict[str, int]:
        """What a reply says; vLLM itself says the number of tokens."""
        return {name: value for name, value in asdict(self).items() if name != "tokens"}


async def counted(outputs: Any, reply: Usage) -> AsyncIterator[Any]:
    """Pass on vLLM's outputs of a request. Count it when it is complete, also in `reply`."""
    own = Usage()
    async with aclosing(outputs):
        async for output in outputs:
            for choice in output.outputs:
                own.add(choice.token_ids, choice.spec_decode_metrics)
            if output.finished:
                own.count()
                reply.include(own)
            yield output


class Agreement:
    """Adds what audits have found since the last time to the counters."""

    def __init__(self) -> None:
        self._audited = self._disagreed = 0

    def count(self, audited: int, disagreed: int) -> None:
        """`audited`, `disagreed`: the engine's totals."""
        AUDITED.inc(audited - self._audited)
        DISAGREED.inc(disagreed - self._disagreed)
        self._audited, self._disagreed = audited, disagreed


def with_usage(event: str, usage: Usage) -> str:
    """Add `usage.citer` to a stream's last event, the one that has the usage but no choice."""
    if '"choices":[]' not in event or '"usage":{' not in event:
        return event
    content: dict[str, Any] = json.loads(event.removeprefix("data: "))
    content["usage"]["citer"] = usage.fields
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"
