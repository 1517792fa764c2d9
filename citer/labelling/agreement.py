"""Agreement: finish the answer after the SLM's token, and compare it with the LLM's answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.data.tasks.task import GraderError
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.labelling.contests import Contest
from citer.labelling.preference import Decision
from citer.labelling.rollout import finished
from citer.models.pair import Pair
from citer.progress import Advance


@dataclass(frozen=True)
class Agreement:
    """Decides by whether the finished answer is the LLM's (`Task.same`). It needs no grader.

    The LLM's answer is the reference, if the LLM wrote it, else its finished branch. An answer that
    is cut off is the same as no other.
    """

    engine: Engine
    policy: Policy

    @property
    def pair(self) -> Pair:
        return self.engine.pair

    def __call__(self, contests: Sequence[Contest], advance: Advance) -> list[Decision]:
        targets: list[str | None] = [contest.problem.reference for contest in contests]
        given = [n for n, contest in enumerate(contests) if contest.problem.written_by != "llm"]
        advance(len(contests) - len(given))
        branches = [contests[n].llm for n in given]
        for index, text in finished(branches, self.engine, self.policy):
            targets[given[index]] = text
            advance(1)
        decisions: dict[int, Decision] = {}
        branches = [contest.slm for contest in contests]
        for index, text in finished(branches, self.engine, self.policy):
            decisions[index] = _compared(contests[index].problem, targets[index], text)
            advance(1)
        return [decisions[index] for index in range(len(contests))]


def _compared(problem: Problem, target: str | None, text: str | None) -> Decision:
    if target is None or text is None:
        return Decision(0, "agreement")
    try:
        return Decision(int(find_task(problem.task).same(problem, target, text)), "agreement")
    except GraderError as error:
        return Decision(0, "agreement", failure=str(error))
