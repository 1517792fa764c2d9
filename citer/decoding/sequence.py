"""A sequence decodes one request by many policies, and computes each shared token once.

The answers of the policies form a trie. They share all tokens up to a fork, where one policy takes
the LLM's token and another keeps the SLM's. The sequence follows the SLM's branch first. A policy
that takes the LLM's token, or whose audit rejects the SLM's, waits at the fork. When no policy is
left on the SLM's branch, the sequence goes back to the last fork.

A sequence has one drafter (`Rule.draft`), so that all policies at a place get the same draft.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from citer.decoding.answer import Answer, Disagreement, Limits, Request, Visit, Written
from citer.decoding.lookup import Lookup
from citer.decoding.policy import Policy
from citer.decoding.verifier import Query, Verdict
from citer.models.router import HIGHEST
from citer.models.sampling import stable_hash

Handle = NewType("Handle", int)


class Draft(NamedTuple):
    """The SLM's next token, or a copied one, and its score by each scorer."""

    token: int
    scores: list[float]
    copied: bool = False


@dataclass(eq=False)
class Path:
    """The state of one policy. `pending_from` is the position after the LLM's last token."""

    policy: Policy
    scorer: int  # index of the policy's scorer in `Draft.scores`
    pending_from: int = 0
    risk: float = 1.0  # product of the pending tokens' scores
    owed: bool = False  # the LLM was visited and writes the next token
    visits: list[Visit] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Cached, because they are read for every token.
        self.rule = rule = self.policy.rule
        self.asks_slm, self.least_score = rule.asks_slm, rule.least_score
        self.may_be_due = rule.visit != "score" or rule.audit > 0 or rule.cap > 0
        if rule.cap:  # the LLM reads the prompt and writes the first token
            self.visits.append(Visit(0, 0, 0))
            self.pending_from, self.owed = 1, True

    def takes_llm_token(self, draft: Draft | None) -> bool:
        """Return whether the LLM writes the next token, as it does where nothing drafted."""
        return draft is None or self.owed or draft.scores[self.scorer] < self.least_score

    def due(self, length: int, ended: bool) -> bool:
        """Return whether the rule requires a visit after `length` tokens."""
        pending = length - self.pending_from
        if pending <= 0:
            return False
        if ended and (self.rule.ends_with_visit or not self.rule.audit):
            return self.rule.ends_with_visit
        return self.rule.due(self.risk, pending)


class _Fork(NamedTuple):
    token: int  # the LLM's
    paths: list[Path]


class Need(Enum):
    """What a sequence needs before it can go on."""

    SLM = "the SLM's next token"
    LLM = "the LLM's verdicts"
    NOTHING = "all answers are finished"


class Sequence:
    """One request in a slot, decoded for all its policies.

    `ids` is the branch being written; other paths wait in `_forks`.

        ids:  prompt, prefix | written: settled … pending … | draft
                             begin             a path's pending_from

    `go_on` returns the model that must run next. The caller runs it, and passes the SLM's token to
    `take_draft` or the LLM's verdicts on `query` to `take_verdicts`. Positions count written
    tokens, without the prefix. `slm_read` and `llm_read` are the numbers of leading tokens of
    `ids` that each model has read and that were not replaced since.
    """

    def __init__(
        self, handle: Handle, request: Request, policies: Mapping[Policy, int], limits: Limits
    ) -> None:
        """`policies` have one drafter, and the index of each one's scorer in `Draft.scores`."""
        self._drafter = next(iter(policies)).rule.draft
        self._lookup = None if self._drafter == "slm" else Lookup()
        self._columns = 1 + max(policies.values())
        self.handle = handle
        self.request = request
        self.limits = limits
        self.slot = -1  # none yet
        self.need: Need | None = None  # as long as it has no slot
        self.single = len(policies) == 1
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
        self._replaced: dict[int, tuple[int, ...]] = {}  # drafts that gave way to the LLM's token
        # No rule has been asked yet whether the last token requires a visit.
        self._unchecked = False
        self._reported = 0  # tokens that `newly_settled` has returned

    @property
    def length(self) -> int:
        """Tokens written."""
        return len(self.ids) - self.begin

    def newly_settled(self) -> tuple[Written, ...]:
        """Return the tokens that have settled since the last call. Expects a single policy."""
        first, after = self._reported, self.length
        for path in self._paths:
            if path.rule.audit:
                after = min(after, path.pending_from)
        self._reported = after
        return tuple(map(self._written, range(first, after)))

    def _written(self, position: int) -> Written:
        token, draft = self.ids[self.begin + position], self._drafts[position]
        if position in self._replaced:
            return Written(token, "llm", self._replaced[position])
        return Written(token, "lookup" if draft and draft.copied else "slm")

    def query(self) -> Query:
        """Return the next query. Without audits, it judges only the position after the read ids."""
        reads_to = self._llm_reads_to
        audits = any(path.rule.audit for path in self._paths)
        first = max(self.begin, self.llm_read + 1) if audits else reads_to
        unread = [*self.ids[reads_to:], self.draft.token if self.draft else None]
        ids, draft = self.ids[:reads_to], unread[0]
        cache = self.slot, self.llm_read, self.trunk
        return Query(ids, first, draft, self.request.sampling, *cache)

    def take_draft(self, draft: Draft) -> None:
        self.draft = draft
        self.slm_read = len(self.ids)

    def take_verdicts(self, verdicts: list[Verdict]) -> None:
        first = self._llm_reads_to - self.begin + 1 - len(verdicts)
        self._verdicts.update(enumerate(verdicts, first))
        self.llm_read = self._llm_reads_to

    def go_on(self) -> tuple[Need, list[Answer]]:
        """Go on until a model must run. Return that need, and the answers finished on the way."""
        answers: list[Answer] = []
        while True:
            if self._unchecked:
                ended = self._ended()
                length = self.length
                due = [p for p in self._paths if p.may_be_due and p.due(length, ended)]
                if due and self._must_read(len(self.ids) - ended):
                    return Need.LLM, answers
                answers += self._check(due, ended)
            if self._paths:
                if not self.draft and any(p.asks_slm and not p.owed for p in self._paths):
                    self.draft = self._copied()
                    if not self.draft and self._drafter != "lookup":
                        return Need.SLM, answers
                takers = [path for path in self._paths if path.takes_llm_token(self.draft)]
                if takers and self._must_read(len(self.ids)):
                    return Need.LLM, answers
                self._write(takers)
            elif self._forks:
                self._go_back()
            else:
                return Need.NOTHING, answers

    def _copied(self) -> Draft | None:
        if not (found := self._lookup and self._lookup.draft(self.ids)):
            return None
        token, score = found
        return Draft(token, [score] * self._columns, copied=True)

    def _must_read(self, reads_to: int) -> bool:
        self._llm_reads_to = reads_to
        return self.llm_read < reads_to

    def _write(self, takers: list[Path]) -> None:
        """Write the draft for the paths that keep it. The `takers` take the LLM's token."""
        position, draft, self.draft = self.length, self.draft, None
        self._drafts.append(draft)
        for path in takers:
            self._paths.remove(path)
            kept = position
            if not path.owed:
                drafts = position - path.pending_from + (path.asks_slm and draft is not None)
                kept = self._audit(path, drafts, position)
            path.owed = False
            self._wait_at(kept, path)
        if not draft or not self._paths:
            return
        for path in self._paths:
            path.risk *= draft.scores[path.scorer]
        self._append(draft.token)
        if position in self._forks and self._forks[position].token == draft.token:
            self._paths += self._forks.pop(position).paths

    def _audit(self, path: Path, drafts: int, seen: int) -> int:
        """Record a visit after `drafts` drafts. Return how many tokens precede a rejected one."""
        kept, audited, disagreements, begin = self.length, 0, [], path.pending_from
        drafted = enumerate(self._drafts[begin : begin + drafts], begin)
        copied = tuple(position for position, draft in drafted if draft and draft.copied)
        for position in range(begin, self.length if path.rule.audit else begin):
            token, verdict = self.ids[self.begin + position], self._verdicts[position]
            is_slms = position not in copied
            audited += is_slms
            if verdict.odds is not None and token != verdict.token:
                odds = min(verdict.odds, HIGHEST)  # of a tie, where the LLM chose the smaller id
                if is_slms:
                    disagreements.append(Disagreement(position, token, verdict.token, odds))
                if not odds >= path.rule.audit:  # NaN is rejected, too
                    kept = position
                    break
        counted = drafts - len(copied), seen, kept, audited, tuple(disagreements)
        path.visits.append(Visit(*counted, copied))
        path.pending_from, path.risk = kept + 1, 1.0
        return kept

    def _wait_at(self, position: int, path: Path) -> None:
        token = self._verdicts[position].token
        self._forks.setdefault(position, _Fork(token, [])).paths.append(path)

    def _append(self, token: int) -> None:
        """Write a token. It is unread if the LLM's other choice here lacks the odds for audits."""
        verdict = self._verdicts.get(self.length)
        if verdict and verdict.odds is None and verdict.token != token:
            self.llm_read = len(self.ids) - 1
        self.ids.append(token)
        self._unchecked = True

    def _ended(self) -> bool:
        return self.length == self.limits.max_new_tokens or self.limits.complete(
            self.ids, len(self.request.prompt_ids)
        )

    def _check(self, due: list[Path], ended: bool) -> list[Answer]:
        """Audit the paths that are `due`. A path whose token is rejected waits at its fork.

        If the answer has ended, return it for each path that is left.
        """
        self._unchecked = False
        for path in due:
            drafts = self.length - path.pending_from
            kept = self._audit(path, drafts, self._llm_reads_to - self.begin)
            path.owed = kept == self.length
            if kept < self.length:
                self._paths.remove(path)
                self._wait_at(kept, path)
        if not ended:
            return []
        finished, self._paths = self._paths, []
        return [self._answer(path) for path in finished]

    def _answer(self, path: Path) -> Answer:
        written = tuple(self.ids[self.begin :])
        truncated = not self.limits.complete(self.ids, len(self.request.prompt_ids))
        scores = tuple(draft.scores[path.scorer] if draft else 0.0 for draft in self._drafts)
        visits = tuple(path.visits)
        return Answer(self.request.key, path.policy, written, scores, visits, truncated)

    def _go_back(self) -> None:
        """Go back to the last fork and write the LLM's token there. No earlier token is pending."""
        position = max(self._forks)
        token, self._paths = self._forks.pop(position)
        if self._lookup:
            self._lookup.cut(self.begin + position)
        del self._drafts[position + 1 :]
        self._replaced[position] = tuple(self.ids[self.begin + position :])
        del self.ids[self.begin + position :]
        self._verdicts.clear()
        self.slm_read = min(self.slm_read, len(self.ids))
        self.llm_read = min(self.llm_read, len(self.ids))
        self._append(token)
