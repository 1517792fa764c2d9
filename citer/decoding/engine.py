"""Routed decoding: greedy or sampled, batched over slots, with a KV cache per model.

Rollouts, evaluation and serving all use this decoder. CITER, speculative decoding and audited
routing are settings of it (`citer.rule`). A step runs one model once. The SLM drafts the next token
of each sequence that needs one, and the router scores it. If a rule requires a visit, the LLM runs
one forward: it reads the tokens that it has not seen, judges them and writes the next token.

A request may have several policies, which share forwards (`citer.decoding.sequence`).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

import torch

from citer.decoding.answer import Answer, Limits, Request, Work, Written, llm_runs
from citer.decoding.policy import Policy
from citer.decoding.runner import Drafts, Held, MakeGraphs, ModelRunner
from citer.decoding.sequence import Draft, Handle, Need, Sequence
from citer.decoding.served import ServedVerifier, verifier_of
from citer.errors import InputError
from citer.models.cache import Row
from citer.models.graphs import cuda_graphs
from citer.models.pair import Pair
from citer.models.room import check_fits
from citer.models.sampling import noise


class Settled(NamedTuple):
    """The next tokens of an answer, which no audit can reject any more."""

    handle: Handle
    written: tuple[Written, ...]


class Finished(NamedTuple):
    """The answer of one policy is complete."""

    handle: Handle
    answer: Answer


Event = Settled | Finished


class Engine:
    """Decodes `slots` requests at a time, with at most `max_new_tokens` tokens per answer.

    With `delayed`, the LLM runs when half of the sequences in slots wait for it, else as soon as
    one does. On a GPU, short forwards run as CUDA graphs, unless `make_graphs` is `no_graphs`.
    """

    _drafts: Drafts

    def __init__(
        self,
        pair: Pair,
        slots: int,
        max_new_tokens: int,
        delayed: bool = False,
        make_graphs: MakeGraphs = cuda_graphs,
    ) -> None:
        self.pair = pair
        self.slots = slots
        self.limits = Limits(pair.eos_ids, max_new_tokens, pair.stops)
        self.delayed = delayed
        self.make_graphs = make_graphs
        self._slm = ModelRunner(pair.slm, slots, make_graphs)
        self._verifier = verifier_of(pair.llm, pair.vocabulary, slots, make_graphs)
        self._handles = map(Handle, count())
        self._sequences: dict[Handle, Sequence] = {}  # of requests that are not finished
        self._start_over()

    def __reduce__(self) -> tuple[type["Engine"], tuple[Any, ...]]:
        """Pickle the pair and the settings only. An unpickled engine is new and idle."""
        limit = self.limits.max_new_tokens
        return Engine, (self.pair, self.slots, limit, self.delayed, self.make_graphs)

    @property
    def slm_work(self) -> Work:
        """The work of the SLM since the engine was made, at the batch sizes that it ran."""
        return self._slm.total

    @property
    def llm_work(self) -> Work:
        return self._verifier.work

    def decode(self, requests: Iterable[Request], policy: Policy) -> Iterator[Answer]:
        """Answer every request. Yields the answers in the order in which they finish.

        Raises InputError as `check` does, RuntimeError if other requests are in flight.
        """
        return self.sweep(requests, [policy])

    @torch.inference_mode()
    def sweep(self, requests: Iterable[Request], policies: Collection[Policy]) -> Iterator[Answer]:
        """Like `decode`, but yield an answer for each request and each different policy. Those
        of one drafter share forwards.

        Leaving the iterator early cancels its requests. While it runs, do not call `submit` or
        `step`: their events would be lost.
        """
        if self._sequences:
            raise RuntimeError("the engine has other requests in flight")
        queue, handles = iter(requests if policies else ()), set[Handle]()
        groups = [
            [policy for policy in policies if policy.rule.draft == drafter]
            for drafter in dict.fromkeys(policy.rule.draft for policy in policies)
        ]
        try:
            while True:
                for request in islice(queue, max(0, len(self._free) - len(self._queued()))):
                    handles.update(self.submit(request, *group) for group in groups)
                if not self._sequences:
                    return
                for event in self.step():
                    if isinstance(event, Finished):
                        yield event.answer
        finally:
            for handle in handles:
                self.cancel(handle)

    def submit(self, request: Request, policy: Policy, *more: Policy) -> Handle:
        """Queue a request until a slot is free. Policies of one drafter share its forwards.

        Raises InputError as `check` does.
        """
        policies = (policy, *more)
        self.check(request)
        if not self._sequences:
            self._start_over()
        scorers = dict.fromkeys([*self._drafts.scorers, *(each.scorer for each in policies)])
        self._drafts = Drafts(self.pair, tuple(scorers))
        columns = {each: self._drafts.scorers.index(each.scorer) for each in policies}
        handle = next(self._handles)
        self._sequences[handle] = Sequence(handle, request, columns, self._limits(request))
        return handle

    def check(self, request: Request) -> None:
        """Raise InputError for a request that is empty or too long, or sampled by a served LLM."""
        if request.sampling and isinstance(self._verifier, ServedVerifier):
            raise InputError(f"{request.key}: sampling, expected greedy: a server runs the LLM")
        length = len(request.prompt_ids) + len(request.prefix_ids)
        if not length:
            raise InputError(f"{request.key}: no tokens, expected a prompt")
        limit = self._limits(request).max_new_tokens
        check_fits(request.key, length, self.pair.context, limit)

    def _limits(self, request: Request) -> Limits:
        stops = self.pair.stops_with(request.stop) if request.stop else self.limits.stops
        limit = request.max_new_tokens or self.limits.max_new_tokens
        return replace(self.limits, max_new_tokens=limit, stops=stops)

    def cancel(self, handle: Handle) -> None:
        """Drop a request and free its slot at once. Ignores a finished request."""
        sequence = self._sequences.pop(handle, None)
        if sequence and sequence.need:
            self._free.append(sequence.slot)

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Run one model once and return the events.

        The list may be empty; the engine is idle when every handle has finished or was cancelled.
        Only requests with a single policy have `Settled` events.
        """
        events: list[Event] = []
        queued = iter(self._queued())
        while self._free and (sequence := next(queued, None)):
            sequence.slot = self._free.pop()
            events += self._go_on(sequence)
        visiting, drafting = self._in_need(Need.LLM), self._in_need(Need.SLM)
        runs_llm = llm_runs(*_deciding(visiting, drafting), delayed=self.delayed)
        sequences = visiting if runs_llm else drafting
        if runs_llm:
            self._visit(sequences)
        elif sequences:
            self._draft(sequences)
        for sequence in sequences:
            events += self._go_on(sequence)
        return events

    def _queued(self) -> list[Sequence]:
        """The sequences without a slot, in the order of their requests."""
        return [each for each in self._sequences.values() if not each.need]

    def _in_need(self, need: Need) -> list[Sequence]:
        """The sequences that need a model. Rows of neighbouring slots need no copy."""
        waiting = (each for each in self._sequences.values() if each.need is need)
        return sorted(waiting, key=lambda each: each.slot)

    def _start_over(self) -> None:
        """Give slots and scorer columns in the same order to every run."""
        self._free = list(range(self.slots))[::-1]
        self._drafts = Drafts(self.pair, ())

    def _go_on(self, sequence: Sequence) -> list[Event]:
        """Let a sequence go on until it needs a model. Free its slot if it needs none."""
        sequence.need, answers = sequence.go_on()
        if sequence.need is Need.NOTHING:
            self.cancel(sequence.handle)
        events: list[Event] = [Finished(sequence.handle, answer) for answer in answers]
        if sequence.single and (written := sequence.newly_settled()):
            events.insert(0, Settled(sequence.handle, written))
        return events

    def _draft(self, sequences: list[Sequence]) -> None:
        """Draft the next token of each sequence with the SLM."""
        self._slm.prepare(
            [Held(sequence.slot, sequence.slm_read, sequence.trunk) for sequence in sequences]
        )
        rows = [_row(sequence) for sequence in sequences]
        results = self._slm.consume(rows, self._drafts)
        for sequence, [(token, *scores)] in zip(sequences, results, strict=True):
            sequence.take_draft(Draft(int(token), scores))

    def _visit(self, sequences: list[Sequence]) -> None:
        """Judge the tokens of each sequence that the LLM has not seen."""
        queries = [sequence.query() for sequence in sequences]
        for sequence, verdicts in zip(sequences, self._verifier.verdicts(queries), strict=True):
            sequence.take_verdicts(verdicts)


def _deciding(visiting: list[Sequence], drafting: list[Sequence]) -> tuple[int, int]:
    """Count the sequences of both; the patient ones only if there are no others."""
    first, second = (sum(not s.request.patient for s in both) for both in (visiting, drafting))
    return (first, second) if first or second else (len(visiting), len(drafting))


def _row(sequence: Sequence) -> Row:
    request, length = sequence.request, len(sequence.ids)
    given = (sequence.seed, length - len(request.prompt_ids))  # in the answer the prefix counts
    return Row(sequence.slot, sequence.ids, [given], noise(request.sampling, [length]))
