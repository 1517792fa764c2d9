"""Suffix: by how much the LLM's own ending becomes less likely if the SLM's token stands.

After SelfJudge (arXiv 2510.02329). It needs no rollout and no grader.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from citer.decoding.answer import Trunk
from citer.decoding.engine import judge_for
from citer.decoding.judge import Query, Verdict
from citer.labelling.contests import Branch, Contest
from citer.labelling.preference import Decision
from citer.models.graphs import no_graphs
from citer.models.pair import Pair
from citer.progress import Advance

MARGIN = 4.0  # nats: where no rollout can be graded
TOKENS = 2048  # judged at once; the LLM's logits of all of them are in memory
LEAST = np.finfo(np.float32).tiny  # odds; smaller ones may have become 0


@dataclass(frozen=True)
class Suffix:
    """Decides by the fall, in nats: label 1 if it is at most `margin`.

    The LLM reads the reference with its own token at the contested position, and with the SLM's.
    The fall is the sum of log(p(token) / p(the LLM's choice)) of the first text minus that of the
    second, from the contested token to the end. The LLM's own token is the reference's if the LLM
    wrote the reference. After a token that ends the answer nothing is read.
    """

    pair: Pair
    slots: int
    margin: float = MARGIN

    def __call__(self, contests: Sequence[Contest], advance: Advance) -> list[Decision]:
        falls = self.falls(contests, advance)
        return [Decision(int(fall <= self.margin), "suffix", fall=fall) for fall in falls]

    @torch.inference_mode()
    def falls(self, contests: Sequence[Contest], advance: Advance) -> list[float]:
        """Return the fall of each contest, in nats."""
        both = [(_own(contest), contest.slm) for contest in contests]
        branches = {branch.key: branch for pair in both for branch in pair}
        # A new judge has no trunks yet: what it computes does not depend on earlier calls.
        judge = judge_for(self.pair, self.slots, no_graphs)
        odds: dict[str, np.ndarray] = {}
        for group in _groups([*branches.values()], self.slots):
            queries = [_query(branch, n, self.pair.ended) for n, branch in enumerate(group)]
            for branch, verdicts in zip(group, judge.verdicts(queries), strict=True):
                odds[branch.key] = _log_odds(verdicts)
            advance(2 * len(contests) * len(group) / len(branches))
        return [
            float(odds[own.key][slm.position - own.position :].sum() - odds[slm.key].sum())
            for own, slm in both
        ]


def _own(contest: Contest) -> Branch:
    """Return the branch with the LLM's token: the LLM's own reference serves for all positions."""
    problem, example, *_ = contest.llm
    if problem.written_by == "llm":
        return Branch(problem, example, 0, example.reference_ids[0])
    return contest.llm


def _groups(branches: Sequence[Branch], slots: int) -> Iterator[list[Branch]]:
    """Group branches for common forwards, in order: those of a problem share its trunk."""
    group: list[Branch] = []
    tokens = 0
    for branch in branches:
        judged = len(branch.example.reference_ids) - branch.position
        if group and (len(group) == slots or tokens + judged > TOKENS):
            yield group
            group, tokens = [], 0
        group.append(branch)
        tokens += judged
    if group:
        yield group


def _query(branch: Branch, slot: int, ended: Callable[[Sequence[int]], bool]) -> Query:
    """Ask for verdicts on the branch's token and on the rest of the reference."""
    prompt_ids, reference_ids = branch.example
    rest = [] if ended(branch.prefix_ids) else reference_ids[branch.position + 1 :]
    *ids, last = (*prompt_ids, *branch.prefix_ids, *rest)
    first = len(prompt_ids) + branch.position
    # The token before the first judged one is read again: its state gives the first verdict.
    return Query(ids, first, last, slot=slot, trunk=Trunk(branch.trunk_ids, first - 1))


def _log_odds(verdicts: Sequence[Verdict]) -> np.ndarray:
    odds_N = np.array([verdict.odds for verdict in verdicts], np.float64)
    return np.log(np.maximum(odds_N, LEAST))
