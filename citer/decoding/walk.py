"""A walk through the trie of a request's answers: many policies, one branch at a time.

The answers of all policies share every token until one policy takes the LLM's token where the
others keep the SLM's. That policy waits at the fork, and so does a policy whose audit rolls its
answer back to there. When no policy is left on the SLM's branch, the walk goes back to its last
fork.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NewType

from citer.decoding.answer import Answer, Disagreement, Request, Visit, stable_hash
from citer.decoding.judge import Query, Verdict
from citer.decoding.path import Draft, Path
from citer.decoding.policy import Policy
from citer.models.router import HIGHEST

Handle = NewType("Handle", int)


class _Fork(NamedTuple):
    token: int  # the LLM's
    paths: list[Path]


class Need(Enum):
    """What a walk needs next."""

    SLM = "the SLM's next token"
    LLM = "the LLM's verdicts"
    NOTHING = "all answers are finished"


@dataclass(frozen=True)
class Limits:
    """What ends an answer."""

    eos_ids: tuple[int, ...]
    max_new_tokens: int


class Walk:
    """One sequence that is being written, for all policies that have written the same tokens.

        ids:  prompt, prefix | written: settled … pending … | draft
                             begin             a path's pending_from

    `go_on` says which model is needed. That model then runs: `take_draft` takes the SLM's token,
    `take_verdicts` the LLM's verdicts on `query`. Positions count written tokens. `slm_read` and
    `llm_read` are how many of `ids` each model has read that still stand.
    """

    def __init__(
        self,
        handle: Handle,
        request: Request,
        policies: Mapping[Policy, int],
        limits: Limits,
    ) -> None:
        """`policies` has the index of each policy's scorer in `Draft.scores`."""
        self.handle = handle
        self.request = request
        self.limits = limits
        self.slot = -1  # until it gets one
        self.single = len(policies) == 1
        self.scorers = {policy.scorer for policy in policies}
        self.trunk = request.trunk
        self.seed = stable_hash(request.key)
        self.ids = [*request.prompt_ids, *request.prefix_ids]
        self.begin = len(self.ids)
        self.slm_read = self.llm_read = 0
        self._llm_reads_to = 0
        self.draft: Draft | None = None
        self._paths = [Path(policy, scorer) for policy, scorer in policies.items()]
        self._drafts: list[Draft | None] = []  # by position; None where the SLM did not run
        self._verdicts: dict[int, Verdict] = {}
        self._forks: dict[int, _Fork] = {}
        self._unchecked = False  # the last token is written, the visit that it may need is not made
        self._reported = 0  # tokens that `newly_settled` has returned

    @property
    def length(self) -> int:
        """Tokens written."""
        return len(self.ids) - self.begin

    @property
    def position(self) -> int:
        """Index of the next token in the answer."""
        return len(self.ids) - len(self.request.prompt_ids)

    def newly_settled(self) -> tuple[int, ...]:
        """With one policy: the tokens since the last call that no audit can reject any more."""
        first, after = self._reported, self.length
        for path in self._paths:
            if path.rule.audit:
                after = min(after, path.pending_from)
        self._reported = after
        return tuple(self.ids[self.begin + first : self.begin + after])

    def query(self) -> Query:
        """The LLM's next query. Without audits it judges the last place alone."""
        reads_to = self._llm_reads_to
        audits = any(path.rule.audit for path in self._paths)
        first = max(self.begin, self.llm_read + 1) if audits else reads_to
        after = [*self.ids[reads_to:], self.draft.token if self.draft else None]
        return Query(
            self.ids[:reads_to], first, after[0], self.slot, kept=self.llm_read, trunk=self.trunk
        )

    def take_draft(self, draft: Draft) -> None:
        self.draft = draft
        self.slm_read = len(self.ids)

    def take_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Take the LLM's verdicts on `query`."""
        first = self._llm_reads_to - self.begin + 1 - len(verdicts)
        self._verdicts.update(enumerate(verdicts, first))
        self.llm_read = self._llm_reads_to

    def go_on(self) -> tuple[Need, list[Answer]]:
        """Go on until a model is needed; also return the answers that were finished."""
        answers: list[Answer] = []
        while True:
            if self._unchecked:
                ended = self._ended()
                due = self._due(ended)
                if due and self._must_read(len(self.ids) - ended):
                    return Need.LLM, answers
                answers += self._check(due, ended)
            if self._paths:
                if not self.draft and any(p.asks_slm and not p.owed for p in self._paths):
                    return Need.SLM, answers
                takers = [path for path in self._paths if path.takes_llms(self.draft)]
                if takers and self._must_read(len(self.ids)):
                    return Need.LLM, answers
                self._write(takers)
            elif self._forks:
                self._go_back()
            else:
                return Need.NOTHING, answers

    def _must_read(self, reads_to: int) -> bool:
        self._llm_reads_to = reads_to
        return self.llm_read < reads_to

    def _write(self, takers: Sequence[Path]) -> None:
        """Write the SLM's token for the paths that keep it, the LLM's for the `takers`."""
        position, draft, self.draft = self.length, self.draft, None
        self._drafts.append(draft)
        for path in takers:
            self._paths.remove(path)
            self._take_llms(path)
        if not draft or not self._paths:
            return
        for path in self._paths:
            path.risk *= draft.scores[path.scorer]
        self._append(draft.token)
        if position in self._forks and self._forks[position].token == draft.token:
            self._paths += self._forks.pop(position).paths

    def _take_llms(self, path: Path) -> None:
        """Move a path to the fork where it takes the LLM's token."""
        position = self.length
        if not path.owed:
            drafted = position - path.pending_from + path.asks_slm
            position = self._audit(path, drafted, position)
        path.owed = False
        self._wait_at(position, path)

    def _audit(self, path: Path, drafted: int, seen: int) -> int:
        """Record a visit; return how many tokens it keeps: those before the first rejected one."""
        kept, disagreements = self.length, []
        audited = range(path.pending_from, self.length if path.rule.audit else path.pending_from)
        for position in audited:
            token, verdict = self.ids[self.begin + position], self._verdicts[position]
            if verdict.odds is not None and token != verdict.token:
                odds = min(verdict.odds, HIGHEST)  # in a tie, the LLM's choice is the first token
                disagreements.append(Disagreement(position, token, verdict.token, odds))
                if odds < path.rule.audit:
                    kept = position
                    break
        looked_at = len(audited) if kept == self.length else kept + 1 - path.pending_from
        path.visits.append(Visit(drafted, seen, kept, looked_at, tuple(disagreements)))
        path.pending_from, path.risk = kept + 1, 1.0
        return kept

    def _wait_at(self, position: int, path: Path) -> None:
        token = self._verdicts[position].token
        self._forks.setdefault(position, _Fork(token, [])).paths.append(path)

    def _append(self, token: int) -> None:
        """Write a token. The LLM must judge its place again if it has not seen the token there."""
        verdict = self._verdicts.get(self.length)
        if verdict and verdict.odds is None and verdict.token != token:
            self.llm_read = len(self.ids) - 1
        self.ids.append(token)
        self._unchecked = True

    def _ended(self) -> bool:
        return self.ids[-1] in self.limits.eos_ids or self.length == self.limits.max_new_tokens

    def _due(self, ended: bool) -> list[Path]:
        length = self.length
        return [path for path in self._paths if path.may_be_due and path.due(length, ended)]

    def _check(self, due: Sequence[Path], ended: bool) -> list[Answer]:
        """Audit the paths that are `due`; at an end, return the answers of those that remain."""
        self._unchecked = False
        for path in due:
            drafted = self.length - path.pending_from
            kept = self._audit(path, drafted, self._llm_reads_to - self.begin)
            path.owed = kept == self.length
            if kept < self.length:
                self._paths.remove(path)
                self._wait_at(kept, path)
        if not ended:
            return []
        standing, self._paths = self._paths, []
        return [self._answer(path) for path in standing]

    def _answer(self, path: Path) -> Answer:
        written = tuple(self.ids[self.begin :])
        truncated = written[-1] not in self.limits.eos_ids
        scores = tuple(draft.scores[path.scorer] if draft else 0.0 for draft in self._drafts)
        visits = tuple(path.visits)
        return Answer(self.request.key, path.policy, written, scores, visits, truncated)

    def _go_back(self) -> None:
        """Go back to the last fork and write the LLM's token; no earlier token is pending."""
        position = max(self._forks)
        token, self._paths = self._forks.pop(position)
        del self._drafts[position + 1 :]
        del self.ids[self.begin + position :]
        self._verdicts.clear()
        self.slm_read = min(self.slm_read, len(self.ids))
        self.llm_read = min(self.llm_read, len(self.ids))
        self._append(token)
