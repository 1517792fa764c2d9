"""Rollouts: finish the answer after each model's token at a contested position, and grade it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from citer.data.tasks.grading import WRONG, Grade, assess
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.labelling.contests import Branch, Contest, Decision
from citer.models.pair import Pair
from citer.progress import Advance


@dataclass(frozen=True)
class Rollout:
    """Decides by the grades of finished answers. The problems must have answers."""

    engine: Engine
    policy: Policy

    @property
    def pair(self) -> Pair:
        return self.engine.pair

    def __call__(self, contests: Sequence[Contest], advance: Advance) -> list[Decision]:
        """Roll out the SLM's branch of each contest and, if it ends wrong, the LLM's branch.

        The first right branch decides. If both are wrong, the SLM's token is accepted.
        """
        slm: dict[int, Grade] = {}
        for index, grade in self._grades([contest.slm for contest in contests]):
            slm[index] = grade
            advance(2 if grade.correct else 1)
        failed = [index for index in range(len(contests)) if not slm[index].correct]
        llm: dict[int, Grade] = {}
        for index, grade in self._grades([contests[index].llm for index in failed]):
            llm[failed[index]] = grade
            advance(1)
        return [self._decision(slm[index], llm.get(index)) for index in range(len(contests))]

    def _decision(self, slm: Grade, llm: Grade | None) -> Decision:
        if llm is None:
            return Decision(1, "rollout", slm.correct)
        label = int(not llm.correct)
        return Decision(label, "rollout", slm.correct, llm.correct, slm.failure or llm.failure)

    def _grades(self, branches: Sequence[Branch]) -> Iterator[tuple[int, Grade]]:
        """Finish the branches and yield the index and grade of each, in any order.

        A truncated answer is wrong.
        """
        unfinished = {}
        for index, branch in enumerate(branches):
            if self.pair.ended(branch.prefix_ids):
                yield index, assess(branch.problem, self.pair.text(branch.prefix_ids))
            else:
                unfinished[branch.key] = index, branch
        requests = (branch.request() for _, branch in unfinished.values())
        for answer in self.engine.decode(requests, self.policy):
            index, branch = unfinished[answer.key]
            text = self.pair.text(branch.prefix_ids + answer.token_ids)
            yield index, WRONG if answer.truncated else assess(branch.problem, text)
