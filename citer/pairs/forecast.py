"""A rough forecast of how long the later stages take, from the pace of each model alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from citer.config.params import EvaluateParams, TrainParams
from citer.pairs.probe import Pace

# Guesses. They depend on the pair, and no model has been trained yet.
CONTESTED = 0.1  # share of the reference tokens that `label` decides by two rollouts
FIXED, ANEW = 100, 30  # rules that are worth a test, on the embedded pair: of `rivals`, of a router
HELD_OUT = 3  # times as many rules are tried on the held-out questions
AUDITED = 0.3  # share of the LLM's time that an answer of audited routing takes
SHARED = 0.1  # share of the work that is left, since rules share the tokens before they differ


@dataclass(frozen=True)
class Workload:
    """Questions per split, the mean tokens of a prompt and of an answer, each model's pace.

    The LLM writes `written` answers for the stage `references`. The answer is the LLM's, since a
    finetuned SLM writes about as much.
    """

    questions: Mapping[str, int]
    written: int
    prompt: float
    answer: float
    slm: Pace
    llm: Pace

    def minutes(self, evaluate: EvaluateParams, train: TrainParams) -> dict[str, float]:
        """Return the minutes of the long stages; @k: for each iteration.

        `label@k` is by rollouts; the LLM reads half of each answer twice for `suffix`.
        """
        preference, test = self.questions["preference"], self.questions["test"]
        both = self.questions["validation"] + test
        alone = both + preference * ("query" in evaluate.bounds)
        asked = both + HELD_OUT * train.holdout * preference
        candidate = asked * SHARED * self._routed(AUDITED)
        # Each is half an answer, on average.
        rollouts = 2 * CONTESTED * self.answer * preference
        seconds = {
            "references": self.written * self._alone(self.llm),
            "score_llm": preference * (self.prompt + self.answer) * self.llm.prompt,
            "rivals": alone * (self._routed(0) + self._alone(self.llm)) + FIXED * candidate,
            "label@k": rollouts / 2 * self._routed(AUDITED),
            "label@k by suffix": rollouts / 2 * self.answer * self.llm.prompt,
            "evaluate@k": ANEW * candidate,
        }
        return {stage: total / 60 for stage, total in seconds.items()}

    def _alone(self, pace: Pace) -> float:
        """Seconds per answer."""
        return self.prompt * pace.prompt + self.answer * pace.answer

    def _routed(self, share: float) -> float:
        """Seconds per answer, if the LLM takes this share of the time that it would take alone."""
        return self._alone(self.slm) + share * self._alone(self.llm)


def in_words(minutes: Mapping[str, float]) -> str:
    """Format minutes by stage: `rivals 3 min, label under 1 min`."""
    return ", ".join(
        f"{stage} {f'{number:,.0f} min' if number >= 1 else 'under 1 min'}"
        for stage, number in minutes.items()
    )
