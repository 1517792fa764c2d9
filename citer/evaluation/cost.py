"""Cost: bytes moved per answered question, after the paper's "data transfer" (arXiv 2502.01976).

    n_slm (W_s + W_r) + n_llm W_l + KV read + KV written,    n forwards, W weight bytes

The forwards of an answer follow from its visits, and do not depend on the batch. The SLM reads the
prompt and every token but the last. It reads a position again if an audit rejected its token. It
runs no forward for a copied draft, which it reads when it drafts next. At each visit, the LLM reads
the tokens that it has not seen. A replay of all answers therefore gives the cost of a batch. The
sequences of a forward share one reading of the weights.

A batch has a schedule. `plain` and `delayed` are the engine's (`llm_runs`). In `lockstep`, that of
an inference server, all answers in flight take their next run of drafts, then one forward of the
LLM serves all that need it.
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from citer.config.params import EvaluateParams, ServeParams
from citer.decoding.answer import Visit, Work, llm_runs

if TYPE_CHECKING:  # takes seconds to import
    from citer.models.pair import Pair

Schedule = Literal["plain", "delayed", "lockstep"]


class Trace(NamedTuple):
    """The forwards of an answer in order, and the work of each model at batch 1.

    In `forwards`, `s` and `d` are forwards of the SLM, and `l` is one of the LLM. The token of a
    `d` was dropped, by its score or by the audit of the next `l`. Capital letters are prefills.
    """

    forwards: bytes
    slm: Work
    llm: Work

    @classmethod
    def of(cls, prompt_len: int, tokens: int, visits: Sequence[Visit]) -> "Trace":
        """Compute the trace of an answer with `tokens` tokens and these visits."""
        slm, llm, forwards, written = _Reader(), _Reader(), b"", 0
        for visit in visits:
            drafts = range(written, written + visit.drafted + len(visit.copied))
            for position in (each for each in drafts if each not in visit.copied):
                slm.read(prompt_len + position)
                forwards += b"s" if position < visit.kept else b"d"
            llm.read(prompt_len + visit.seen)
            for reader in (slm, llm):
                reader.held = min(reader.held, prompt_len + visit.kept)
            forwards += b"l"
            written = visit.kept + 1
        slm.read(prompt_len + written, tokens - written)
        forwards += b"s" * (tokens - written)
        prefilled = re.sub(b"[sd]", lambda draft: draft[0].upper(), forwards, count=1)
        return cls(prefilled.replace(b"l", b"L", 1), slm.work, llm.work)


class _Reader:
    """The work of one model on one answer. `held` is the number of positions in its cache."""

    def __init__(self) -> None:
        self.work = Work()
        self.held = 0

    def read(self, length: int, forwards: int = 1) -> None:
        """Count `forwards` forwards. The first one ends at `length`, each other a token later."""
        if forwards > 0:
            last = length + forwards - 1
            self.work.add(last - self.held, forwards * (length + last) // 2, forwards)
            self.held = last


@dataclass(frozen=True)
class Prices:
    """Bytes of the weights that a forward reads, and of a position's keys and values."""

    slm_weights: int  # including the router's
    llm_weights: int
    slm_kv: int
    llm_kv: int

    @classmethod
    def of(cls, pair: "Pair", router_weights: int = 0) -> "Prices":
        """Let each forward of the SLM read the router, too."""
        slm, llm = pair.slm.card, pair.llm.card
        weights = slm.weight_bytes + router_weights, llm.weight_bytes
        return cls(*weights, slm.kv_bytes, llm.kv_bytes)

    def moved(self, slm: Work, llm: Work) -> float:
        return (
            slm.forwards * self.slm_weights
            + llm.forwards * self.llm_weights
            + (slm.kv_read + slm.positions) * self.slm_kv
            + (llm.kv_read + llm.positions) * self.llm_kv
        )


class Batch(NamedTuple):
    """Answers that share forwards: the batch `b8`, or `b8_delayed` as of a delayed engine."""

    name: str
    slots: int
    schedule: Schedule = "plain"

    @property
    def column(self) -> str:
        """The column of the POINT table with its cost."""
        return f"cost_{self.name}"

    def __str__(self) -> str:
        how = "" if self.schedule == "plain" else f", {self.schedule}"
        return f"batch {self.slots}{how}"

    def work(self, traces: Sequence[Trace]) -> tuple[Work, Work]:
        """Return the work of the SLM and of the LLM if `slots` answers are in flight at a time.

        Each forward runs one model for all rows that need it. Fewer than two answers per slot are
        repeated up to two, since empty slots are no batch. Their forwards are then scaled back.
        """
        slm, llm = Work(), Work()
        for trace in traces:
            for total, own in ((slm, trace.slm), (llm, trace.llm)):
                total.add(own.positions, own.kv_read, own.forwards)
        if self.slots > 1:
            full = max(len(traces), 2 * self.slots)
            counted = self.forwards([*islice(cycle(traces), full)])
            if full > len(traces):
                counted = [n * len(traces) / full for n in counted]
            slm.forwards, llm.forwards = counted
        return slm, llm

    def forwards(self, traces: Sequence[Trace]) -> Sequence[float]:
        """Count the forwards of the SLM and of the LLM for each answer once, as an engine runs."""
        count = _in_lockstep if self.schedule == "lockstep" else _forwards
        return count(traces, self)


def batches(sizes: Iterable[int], schedules: Sequence[Schedule] = ("delayed",)) -> list[Batch]:
    """Return batch 1 and `sizes`, plain, then those above 1 by each of the other schedules."""
    slots = sorted({1, *sizes})
    plain = [Batch(f"b{n}", n) for n in slots]
    return plain + [Batch(f"b{n}_{how}", n, how) for how in schedules for n in slots if n > 1]


# A run of drafts with the forward of the LLM that follows it, if one does.
_STEP = re.compile(b"[SsDd]*[Ll]|[SsDd]+")


def _in_lockstep(traces: Sequence[Trace], batch: Batch) -> tuple[int, int]:
    """Count the forwards of the SLM and of the LLM. A free slot takes the next answer at once."""
    free_from = [0] * batch.slots  # the step, of each slot
    longest, visits = defaultdict[int, int](int), set[int]()  # by step
    for trace in traces:
        steps = _STEP.findall(trace.forwards)
        for place, step in enumerate(steps, first := free_from[0]):
            drafts = step.rstrip(b"lL")
            longest[place] = max(longest[place], len(drafts))
            if drafts != step:
                visits.add(place)
        heapq.heapreplace(free_from, first + len(steps))
    return sum(longest.values()), len(visits)


# The SLM's forwards up to the next visit, or one forward of the LLM.
_RUN = re.compile("[SsDd][sd]*|[Ll]")


def _forwards(traces: Sequence[Trace], batch: Batch) -> tuple[int, int]:
    """Count the forwards of the SLM and of the LLM. Prefills have forwards of their own."""
    queue = (iter(_RUN.findall(trace.forwards.decode())) for trace in traces)
    replayed = _Replay()
    while True:
        replayed.go_on(islice(queue, batch.slots - replayed.rows))
        visiting = len(replayed.visiting)
        if llm_runs(visiting, replayed.rows - visiting, batch.schedule == "delayed"):
            replayed.visit()
        elif replayed.drafting:
            replayed.draft()
        else:
            return replayed.slm, replayed.llm


class _Replay:
    """Answers that share forwards. A row is the remaining runs of one answer."""

    def __init__(self) -> None:
        self.slm = self.llm = self.rows = 0
        self.drafting: dict[int, list[Iterator[str]]] = {}  # by the last step of their run
        self.visiting: list[tuple[str, Iterator[str]]] = []
        self._steps = 0  # of the SLM
        self._prefills = 0  # rows that the SLM's next step prefills

    def go_on(self, rows: Iterable[Iterator[str]]) -> None:
        """Queue each row for the model of its next run, if there is one."""
        for row in rows:
            run = next(row, "")
            self.rows += bool(run)
            if run in ("l", "L"):
                self.visiting.append((run, row))
            elif run:
                self.drafting.setdefault(self._steps + len(run), []).append(row)
                self._prefills += run[0].isupper()

    def draft(self) -> None:
        """Run the SLM until a row reaches the end of its run."""
        last, drafting = min(self.drafting), sum(map(len, self.drafting.values()))
        self.slm += last - self._steps + (0 < self._prefills < drafting)
        self._steps, self._prefills = last, 0
        self._leave(self.drafting.pop(last))

    def visit(self) -> None:
        visiting, self.visiting = self.visiting, []
        self.llm += len({run for run, _ in visiting})
        self._leave([row for _, row in visiting])

    def _leave(self, rows: Sequence[Iterator[str]]) -> None:
        self.rows -= len(rows)
        self.go_on(rows)


def _shared(serve: ServeParams) -> tuple[Schedule, ...]:
    """Return the schedules of batches. Inside vLLM all requests draft together."""
    return ("delayed", "lockstep") if serve.engine == "vllm" else ("delayed",)


def counted(params: EvaluateParams, serve: ServeParams) -> list[Batch]:
    """Return the batches for which points have a cost."""
    return batches([*params.batches, serve.batch], _shared(serve))


def schedules(serve: ServeParams) -> list[Batch]:
    """Return the ways in which the requests of this place may share forwards."""
    own = [batch for batch in batches([serve.batch], _shared(serve)) if batch.slots == serve.batch]
    return own[-1:] if serve.engine == "vllm" else own


def cap(serve: ServeParams) -> int:
    """Return the cap of the rules that run there, 0 for none."""
    return serve.cap if serve.engine == "vllm" else 0
