"""The schedule inside vLLM: all rows draft in lockstep, then one forward of the LLM visits all.

A *round* is a phase of drafting and one forward of the LLM. Each row drafts until its rule calls
for a visit, its answer ends or `cap` tokens are pending, and waits for the others. The LLM then
verifies the drafts of all rows, prefills new requests and writes the next token of each. So the
LLM also writes the first token of an answer, and also verifies its last drafts.

The replay adds these visits to traces of answers that were decoded without a cap. A trace has the
visits that the rule called for, and the drafts that were dropped; it has no scores. The replay
therefore assumes that

- the LLM writes the token at an added visit that the answer has there. Audit 1 implies it. Under a
  weaker audit the answer could change;
- the rule calls for its next visit where it did without the added visit. A risk starts over at a
  visit, so that its next visit could come later;
- a row's forwards read as many keys and values as the mean forward of its trace;
- the SLM prefills in a forward that it runs anyway.

Under `score τ audit 1` the LLM's forwards are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil

from citer.decoding.answer import Work
from citer.evaluation.cost import Trace

CAPS = (4, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Lockstep:
    """Rounds of at most `cap` drafts. A round ends when the share `quorum` of its rows wait.

    At a quorum below 1, rows that still draft visit the LLM with the others.
    """

    cap: int
    quorum: float = 1.0

    def work(self, traces: Sequence[Trace], slots: int) -> tuple[Work, Work]:
        """Return the work of the SLM and of the LLM if `slots` answers are in flight at a time."""
        slm, llm = Work(), Work()
        queue, rows = iter(traces), list[_Row]()
        while rows := [*rows, *map(_Row, islice(queue, slots - len(rows)))]:
            ahead = sorted(row.ahead for row in rows)
            most = min(self.cap, ahead[ceil(self.quorum * len(ahead)) - 1])
            slm.forwards += max(row.visit(most) for row in rows)
            llm.forwards += 1
            for row in rows:
                if not row.rest:
                    row.add_to(slm, llm)
            rows = [row for row in rows if row.rest]
        return slm, llm


def best_cap(traces: Sequence[Trace], slots: int, price: Callable[[Work, Work], float]) -> int:
    """Return the one of CAPS with the lowest price, which may be bytes or seconds."""
    return min(CAPS, key=lambda cap: price(*Lockstep(cap).work(traces, slots)))


class _Row:
    """An answer in flight. `rest` has the forwards of its trace that are still to come."""

    def __init__(self, trace: Trace) -> None:
        self.drafts = self.visits = 0
        self.trace = trace
        forwards = trace.forwards.lower()
        # The first visit prefills the prompt and writes a token, before any draft.
        self.rest = forwards if forwards[:1] == b"l" else b"l" + _after_llms(forwards)

    @property
    def ahead(self) -> int:
        """The number of drafts before the trace's next visit, or before its end."""
        return len(self.rest) - len(self.rest.lstrip(b"sd"))

    def visit(self, most: int) -> int:
        """Draft at most `most` tokens and visit the LLM. Return the number of drafts."""
        ahead, self.visits = self.ahead, self.visits + 1
        steps = min(ahead, most)
        self.drafts += steps
        rest = self.rest[steps:]
        self.rest = rest[1:] if steps == ahead else _after_llms(rest)
        return steps

    def add_to(self, slm: Work, llm: Work) -> None:
        """Add all but the forwards, which rows share. The LLM reads what the SLM reads."""
        own = self.trace.slm if self.trace.slm.forwards else self.trace.llm
        slm.positions += self.trace.slm.positions
        llm.positions += max(self.trace.slm.positions, self.trace.llm.positions)
        slm.kv_read += self.drafts * own.kv_read // own.forwards
        llm.kv_read += self.visits * own.kv_read // own.forwards


def _after_llms(forwards: bytes) -> bytes:
    """Return the forwards after the token that the LLM writes instead of the next draft.

    In place of a dropped draft, it is the token of the visit that dropped it. A visit that is left
    alone at the end is not needed: the LLM wrote the last token.
    """
    if forwards[:1] == b"d":
        return forwards.partition(b"l")[2]
    return forwards[1:] if forwards[1:] != b"l" else b""
