"""Suffix: by how much the LLM's own ending becomes less likely if the SLM's token stands.

After SelfJudge (arXiv 2510.02329). It needs no rollout and no grader. The tokens right after the
contested one only say whether the wording still fits, so that they are not counted
(docs/method.md). A few rollouts choose its margin.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from citer.decoding.served import verifier_of
from citer.decoding.verifier import Query
from citer.executors.base import Executor
from citer.labelling.contests import Branch, Contest, Decision
from citer.labelling.labeller import Labeller, Rollout, label_in_chunks
from citer.models.pair import Pair
from citer.models.sampling import stable_hash
from citer.progress import Advance

MARGIN = 4.0  # nats: where no rollout can be graded
ENDING = 4  # tokens: the end of an answer, EOS included
CLEAR = 0.5  # nats: a token as likely as this stands, whatever the ending
TOKENS = 2048  # judged at once; the LLM's logits of all of them are in memory
LEAST = np.finfo(np.float32).tiny  # odds; smaller ones may have become 0
SAMPLE = 200  # contested tokens that are rolled out


@dataclass(frozen=True)
class Suffix:
    """Decides by the fall, in nats: label 1 if it is at most `margin`.

    The LLM reads the reference with its own token at the contested position, and with the SLM's.
    The fall is the sum of log(p(token) / p(the LLM's choice)) of the first text minus that of the
    second, over the contested token and the last ENDING tokens after it. The LLM's own token is
    the reference's if the LLM wrote the reference. After a token that ends the answer nothing is
    read.

    The LLM first reads up to the contested token alone. It reads the ending only if the token's own
    term is above CLEAR and at most `margin`. Otherwise that term is the fall. An ending makes no
    fall smaller, so that a label does not depend on the margin up to which endings were read.
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
        falls = self._read(contests, 0)
        unclear = [n for n, own in enumerate(falls) if CLEAR < own <= self.margin]
        advance(2 * (len(contests) - len(unclear)))
        whole = self._read([contests[n] for n in unclear], ENDING)
        for n, fall in zip(unclear, whole, strict=True):
            falls[n] = max(falls[n], fall)
        advance(2 * len(unclear))
        return falls

    def _read(self, contests: Sequence[Contest], ending: int) -> list[float]:
        """Return the falls over the contested tokens and the last `ending` tokens after them."""
        odds: dict[str, np.ndarray] = {}
        # A new verifier has empty slots: what it computes does not depend on earlier calls.
        verifier = verifier_of(self.pair.llm, self.pair.vocabulary, self.slots)
        for turns in _calls(_queues(contests), self.slots):
            queries = [_query(turn, self.pair.ended, ending) for turn in turns]
            for turn, verdicts in zip(turns, verifier.verdicts(queries), strict=True):
                odds_N = np.array([verdict.odds for verdict in verdicts], np.float64)
                odds[turn.branch.key] = np.log(np.maximum(odds_N, LEAST))
        falls = []
        for contest in contests:
            own = _own(contest)
            own_N = odds[own.key][contest.slm.position - own.position :]
            falls.append(_counted(own_N, ending) - _counted(odds[contest.slm.key], ending))
        return falls


class _Turn(NamedTuple):
    """A branch to read in a slot. Unless it is the `first` one there, the slot holds its prefix."""

    slot: int
    first: bool
    branch: Branch


def _own(contest: Contest) -> Branch:
    """Return the branch with the LLM's token: the LLM's own reference serves for all positions."""
    problem, example, *_ = contest.llm
    if problem.written_by == "llm":
        return Branch(problem, example, 0, example.reference_ids[0])
    return contest.llm


def _queues(contests: Sequence[Contest]) -> list[list[Branch]]:
    """List the branches of each problem, the last positions first, but the LLM's reference ahead.

    A slot can then keep the part of the reference that the next branch begins with.
    """
    queues: dict[str, dict[str, Branch]] = {}
    for contest in sorted(contests, key=lambda contest: -contest.slm.position):
        queue = queues.setdefault(contest.slm.problem.problem_id, {})
        queue |= {branch.key: branch for branch in (_own(contest), contest.slm)}
    return [list(queue.values()) for queue in queues.values()]


def _calls(queues: Sequence[Sequence[Branch]], slots: int) -> Iterator[list[_Turn]]:
    """Yield the turns of each call of the verifier: the next branch of each problem in a slot."""
    for start in range(0, len(queues), slots):
        for n, branches in enumerate(zip_longest(*queues[start : start + slots])):
            turns = [_Turn(slot, n == 0, branch) for slot, branch in enumerate(branches) if branch]
            yield from _parts(turns)


def _parts(turns: Sequence[_Turn]) -> Iterator[list[_Turn]]:
    """Split the turns into parts that judge at most TOKENS tokens, or have only one turn."""
    part: list[_Turn] = []
    judged = 0
    for turn in turns:
        more = len(turn.branch.example.reference_ids) - turn.branch.position
        if part and judged + more > TOKENS:
            yield part
            part, judged = [], 0
        part.append(turn)
        judged += more
    yield part


def _query(turn: _Turn, ended: Callable[[Sequence[int]], bool], ending: int) -> Query:
    """Ask for verdicts on the branch's token and, with an ending, on the rest of the reference."""
    slot, is_first, branch = turn
    prompt_ids, reference_ids = branch.example
    is_reference = branch.token == reference_ids[branch.position]
    reads_on = (ending or is_reference) and not ended(branch.prefix_ids)
    rest = reference_ids[branch.position + 1 :] if reads_on else []
    *ids, last = (*prompt_ids, *branch.prefix_ids, *rest)
    first = len(prompt_ids) + branch.position
    # The token before the first judged one is read again: its state gives the first verdict.
    return Query(ids, first, last, slot=slot, kept=0 if is_first else first - 1)


def _counted(odds_N: np.ndarray, ending: int) -> float:
    """Sum the log-odds of the contested token, which is the first, and of the ending."""
    return float(odds_N[0] + odds_N[max(1, len(odds_N) - ending) :].sum())


class Calibration(NamedTuple):
    """A margin in nats. With it, `equal` of `rolled_out` tokens get the label of their rollouts."""

    margin: float = MARGIN
    equal: int = 0
    rolled_out: int = 0

    def __str__(self) -> str:
        if not self.rolled_out:
            return f"suffix: margin {self.margin:g} nats; no row has an answer to calibrate it by"
        same = f"{self.equal} of {self.rolled_out} rolled-out tokens get the same label"
        return f"suffix: margin {self.margin:.2f} nats, calibrated: {same}"


def calibrate(
    executor: Executor, labeller: Labeller, rollout: Rollout, tokens: pa.Table, partial: Path
) -> Calibration:
    """Choose the margin for a `labeller` by `suffix`, by rollouts of contested tokens.

    Finished chunks are kept in `partial`.
    """
    rows = sample(labeller, tokens, SAMPLE)
    if not len(rows):
        return Calibration()
    graded = replace(labeller, method=rollout)
    truth = label_in_chunks(executor, graded, rows, partial / "rollouts", "calibrate")
    falls = label_in_chunks(executor, labeller, rows, partial / "falls", "calibrate")
    return choose(falls["fall"].to_pylist(), truth["label"].to_pylist())


def sample(labeller: Labeller, tokens: pa.Table, count: int) -> pa.Table:
    """Return `count` contested rows of problems with answers, or all if there are fewer.

    A row's rank depends on its problem and position only: the sample hardly changes with problems.
    """
    answered = [p.problem_id for p in labeller.problems.values() if p.answer is not None]
    graded = pc.is_in(tokens["problem_id"], pa.array(answered, pa.string())).to_numpy()
    row_M = np.flatnonzero((labeller.cases(tokens) == "contested") & graded)
    places = (tokens[name].take(row_M).to_pylist() for name in ("problem_id", "position"))
    ranks = [stable_hash(f"{key}@{position}") for key, position in zip(*places, strict=True)]
    return tokens.take(np.sort(row_M[np.argsort(ranks)[:count]]))


def choose(falls: Sequence[float], labels: Sequence[int]) -> Calibration:
    """Return the margin with the most equal labels, and of several the one nearest to MARGIN."""
    fall_N, label_N = np.array(falls), np.array(labels)
    edges = np.unique(fall_N)
    edges = np.array([edges[0] - 1, *edges, edges[-1] + 1])
    margins = [MARGIN, *((edges[1:] + edges[:-1]) / 2).tolist()]
    equal = {margin: int(((fall_N <= margin) == label_N).sum()) for margin in margins}
    best = min(margins, key=lambda margin: (-equal[margin], abs(margin - MARGIN)))
    return Calibration(best, equal[best], len(falls))
