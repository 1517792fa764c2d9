"""Cost: bytes moved per answered question, after the paper's "data transfer" (arXiv 2502.01976).

    n_slm (W_s + W_r) + n_llm W_l + KV read + KV written,    n forwards, W weight bytes

An answer's tokens and who wrote them decide its forwards: whatever the batch, the SLM reads the
prompt and then every token but the last, and the LLM, at each visit, all that it has not yet seen.
So a batch is priced by replaying its answers: weights are read once by every row of a forward.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from citer.decoding.delay import usual_llm_batch
from citer.decoding.lane import Work
from citer.models.pair import Pair


class Trace(NamedTuple):
    """An answer as far as its price goes: tokens of the prompt, who wrote each of its own.

    The LLM alone (τ = 1) does not ask the SLM, whose score could not change a thing.
    """

    prompt_len: int
    by_llm: Sequence[int]  # 0 or 1
    asks_slm: bool = True


@dataclass(frozen=True)
class Prices:
    """Bytes: weights read by a forward, keys and values of a position."""

    slm_weights: int  # the router's with them
    llm_weights: int
    slm_kv: int
    llm_kv: int

    @classmethod
    def of(cls, pair: Pair, router_weights: int = 0) -> "Prices":
        return cls(
            slm_weights=pair.slm.weight_bytes + router_weights,
            llm_weights=pair.llm.weight_bytes,
            slm_kv=pair.slm.kv_bytes,
            llm_kv=pair.llm.kv_bytes,
        )

    def moved(self, slm: Work, llm: Work) -> int:
        """Bytes that this work moves."""
        return (
            slm.forwards * self.slm_weights
            + llm.forwards * self.llm_weights
            + (slm.kv_read + slm.positions) * self.slm_kv
            + (llm.kv_read + llm.positions) * self.llm_kv
        )


def work(trace: Trace) -> tuple[Work, Work]:
    """The SLM's and the LLM's work for one routed answer at batch 1."""
    lengths = range(trace.prompt_len, trace.prompt_len + len(trace.by_llm))
    visited = [length for length, by_llm in zip(lengths, trace.by_llm, strict=True) if by_llm]
    return _work_at(lengths if trace.asks_slm else []), _work_at(visited)


def _work_at(lengths: Sequence[int]) -> Work:
    """Of a model that runs when the text has these lengths, and then reads all it has not seen."""
    return Work(forwards=len(lengths), positions=max(lengths, default=0), kv_read=sum(lengths))


def replay(traces: Sequence[Trace], slots: int, llm_batch: int = 1) -> tuple[Work, Work]:
    """The work of both models when `slots` answers at a time share every forward.

    As in the engine, `llm_batch` delays the LLM until so many answers wait for it, or none can go
    on without it.
    """
    slm, llm = Work(), Work()
    for trace in traces:
        for total, own in zip((slm, llm), work(trace), strict=True):
            total.positions += own.positions
            total.kv_read += own.kv_read
    slm.forwards, llm.forwards = _forwards(traces, slots, llm_batch)
    return slm, llm


class Batch(NamedTuple):
    """A way of batching, `b8` or `b8_delayed`: see `replay`."""

    name: str
    slots: int
    llm_batch: int = 1


def batches(sizes: Iterable[int]) -> list[Batch]:
    """Batch 1 and `sizes`, as they come, then with the LLM delayed until half the answers wait."""
    slots = sorted({1, *sizes})
    plain = [Batch(f"b{n}", n) for n in slots]
    return plain + [Batch(f"b{n}_delayed", n, usual_llm_batch(n)) for n in slots if n > 1]


def _forwards(traces: Sequence[Trace], slots: int, llm_batch: int) -> tuple[int, int]:
    """Forwards of the SLM and of the LLM; each prefills in forwards of their own.

    A row is what is left of an answer, its next token last: "" for the SLM's, else the LLM's.
    """
    queue = (_row(trace.by_llm) for trace in traces)
    slm = llm = 0
    fresh: list[list[str]] = []
    ready: list[list[str]] = []
    waiting: list[list[str]] = []
    while True:
        fresh += islice(queue, slots - len(fresh) - len(ready) - len(waiting))
        if not (fresh or ready or waiting):
            return (slm if traces[0].asks_slm else 0), llm
        if (fresh or ready) and len(waiting) < llm_batch:
            slm += bool(ready) + bool(fresh)
            rows, fresh = ready + fresh, []
            waiting += [row for row in rows if row[-1]]
            ready = [row for row in rows if not row[-1] and _advance(row)]
        else:
            llm += len({row[-1] for row in waiting})
            ready += [row for row in waiting if _advance(row)]
            waiting = []


def _row(by_llm: Sequence[int]) -> list[str]:
    row = ["again" if visited else "" for visited in by_llm]
    if "again" in row:
        row[row.index("again")] = "first"
    return row[::-1]


def _advance(row: list[str]) -> bool:
    """Write the row's next token; is there another to come?"""
    row.pop()
    return bool(row)
