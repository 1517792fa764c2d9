"""What answers cost: in a reply's `usage`, and in counters beside vLLM's own at `/metrics`."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from prometheus_client import Counter

REQUESTS = Counter("citer_requests", "Requests that were answered to the end")
TOKENS = Counter("citer_tokens", "Tokens of their answers, by the model", ["model"])
VISITS = Counter("citer_visits", "Forwards of the LLM that wrote a token of an answer")
DRAFTED = Counter("citer_drafted_tokens", "Tokens of the SLM that the LLM has read")
REJECTED = Counter("citer_rejected_tokens", "Tokens of the SLM that an audit rejected")
AUDITED = Counter(
    "citer_audited_tokens",
    "Tokens of the SLM that audits compared with the LLM's choice, also in unfinished answers",
    ["verdict"],
)


class Steps(Protocol):
    """vLLM's counts of one sequence: `histogram[n]` steps of the LLM accepted n drafted tokens.

    The lists have an entry for each step that had a draft.
    """

    histogram: list[int]
    per_step_drafted: list[int]
    per_step_accepted: list[int]


@dataclass
class Usage:
    """The counts of a request, or of all choices of a reply.

    tokens: of the answer
    llm_tokens: those that the LLM wrote
    visits: forwards of the LLM that wrote a token
    drafted: tokens of the SLM that the LLM has read
    rejected: those of them that an audit rejected, at most one in a visit
    """

    tokens: int = 0
    llm_tokens: int = 0
    visits: int = 0
    drafted: int = 0
    rejected: int = 0

    @classmethod
    def of(cls, tokens: int, steps: Steps) -> "Usage":
        """Return the counts of a complete choice. A stop text or a limit may have cut its end."""
        pairs = list(zip(steps.per_step_accepted, steps.per_step_drafted, strict=True))
        accepted = sum(kept for kept, _ in pairs)
        return cls(
            tokens=tokens,
            llm_tokens=max(0, tokens - accepted),
            visits=sum(steps.histogram),
            drafted=sum(drafted for _, drafted in pairs),
            rejected=sum(kept < drafted for kept, drafted in pairs),
        )

    def include(self, other: "Usage") -> None:
        for field, value in asdict(other).items():
            setattr(self, field, getattr(self, field) + value)

    def count(self) -> None:
        """Add a request to the counters."""
        REQUESTS.inc()
        TOKENS.labels("slm").inc(self.tokens - self.llm_tokens)
        TOKENS.labels("llm").inc(self.llm_tokens)
        VISITS.inc(self.visits)
        DRAFTED.inc(self.drafted)
        REJECTED.inc(self.rejected)

    @property
    def fields(self) -> dict[str, int]:
        """What a reply says; vLLM itself says the number of tokens."""
        return {name: value for name, value in asdict(self).items() if name != "tokens"}


async def counted(outputs: Any, reply: Usage, *, hide: bool) -> AsyncIterator[Any]:
    """Pass on vLLM's outputs of a request. Count it when it is complete, also in `reply`.

    `hide` removes vLLM's own counts, which would else become part of the reply.
    """
    own, tokens = Usage(), defaultdict[int, int](int)  # of each choice
    async with aclosing(outputs):
        async for output in outputs:
            for choice in output.outputs:
                tokens[choice.index] += len(choice.token_ids)
                if steps := choice.spec_decode_metrics:  # the choice is complete
                    own.include(Usage.of(tokens[choice.index], steps))
                    choice.spec_decode_metrics = None if hide else steps
            if output.finished:
                own.count()
                reply.include(own)
            yield output


def count_audits(totals: dict[str, int], before: dict[str, int]) -> None:
    """Add the engine's totals of each verdict to the counters, less those `before`. Updates it."""
    for verdict, total in totals.items():
        AUDITED.labels(verdict).inc(total - before.get(verdict, 0))
    before.update(totals)


def with_usage(event: str, usage: Usage) -> str:
    """Add `usage.citer` to a stream's last event, which has the usage but no choice."""
    if '"choices":[]' not in event or '"usage":{' not in event:
        return event
    content: dict[str, Any] = json.loads(event.removeprefix("data: "))
    content["usage"]["citer"] = usage.fields
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"
