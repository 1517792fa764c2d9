"""A rough forecast of how long the later stages take, from the pace of each model alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from citer.config.params import EvaluateParams, Params
from citer.data.splits import MOST as MOST_HELD_OUT
from citer.evaluation.scorers import INPUTS, SCORERS

# Guesses. They depend on the pair, and no model has been trained yet.
CONTESTED = 0.1  # share of the reference tokens that `label` decides by two rollouts
TESTED = 0.2  # share of the rules that are worth a test
AUDITED = 0.3  # share of the LLM's time that an answer of audited routing takes
SHARED = 0.1  # share of the work that is left, since rules share the tokens before they differ
LEARNING = 3  # times as long as reading a token takes learning from it
FACTOR = 2.0  # by which the truth may be above or below the forecast


class Pace(NamedTuple):
    """A model's seconds per token, for prompts and for answers."""

    prompt: float
    answer: float


@dataclass(frozen=True)
class Workload:
    """Questions per split, the mean tokens of a prompt and of an answer, each model's pace.

    The LLM writes the answers of `written` for the stage `references`. Rollouts label the `graded`
    preference questions. The answer is the LLM's, since a finetuned SLM writes about as much.
    """

    questions: Mapping[str, int]
    written: Mapping[str, int]
    graded: int
    prompt: float
    answer: float
    slm: Pace
    llm: Pace

    def minutes(self, params: Params) -> dict[str, float]:
        """Return the minutes of the long stages, over all iterations."""
        kept = {name: params.references.kept(name, n) for name, n in self.questions.items()}
        preference, test = kept["preference"], kept["test"]
        judged = kept["validation"] + test
        share = {name: kept[name] / max(1, n) for name, n in self.questions.items()}
        written = sum(share[name] * n for name, n in self.written.items())
        held_out = min(params.train.holdout * preference, MOST_HELD_OUT)
        rows = 2 if params.references.source == "both" else 1  # of a question
        learnt = params.finetune.epochs * rows * kept["sft"]
        bounds = {*params.evaluate.bounds}
        alone = judged + preference * ("query" in bounds)
        routed = SHARED * self._routed(AUDITED)
        a_rule = (TESTED * judged + held_out) * routed
        fixed, new = _rules(params.evaluate)
        by_rollout = 0 if params.label.method == "suffix" else share["preference"] * self.graded
        labels = self._rolled_out(by_rollout) + self._read(preference - by_rollout)
        seconds = {
            "references": written * self._alone(self.llm),
            "score_llm": preference * (self.prompt + self.answer) * self.llm.prompt,
            "finetune": LEARNING * learnt * (self.prompt + self.answer) * self.slm.prompt,
            "rivals": alone * (self._routed(0) + self._alone(self.llm))
            + len(bounds - {"query"}) * len(params.evaluate.fractions) * test * routed
            + fixed * a_rule,
            "label": len(params.iterations) * labels,
            "evaluate": len(params.iterations) * new * a_rule,
        }
        return {stage: total / 60 for stage, total in seconds.items()}

    def _rolled_out(self, questions: float) -> float:
        """Seconds of two rollouts for each contested token. Each is half an answer, on average."""
        return questions * CONTESTED * self.answer * self._routed(AUDITED)

    def _read(self, questions: float) -> float:
        """Seconds in which the LLM reads the rest of an answer twice for each of these tokens."""
        return questions * CONTESTED * self.answer * self.answer * self.llm.prompt

    def _alone(self, pace: Pace) -> float:
        """Seconds per answer."""
        return self.prompt * pace.prompt + self.answer * pace.answer

    def _routed(self, share: float) -> float:
        """Seconds per answer, if the LLM takes this share of the time that it would take alone."""
        return self._alone(self.slm) + share * self._alone(self.llm)


def _rules(evaluate: EvaluateParams) -> tuple[int, int]:
    """Count the rules of all iterations together, and those of the heads of one iteration."""
    from citer.evaluation.candidates import UNTRAINED, candidates  # loads torch

    def count(names: Iterable[str]) -> int:
        scorers = dict.fromkeys(names, UNTRAINED[""])
        lines = candidates(scorers, dict.fromkeys(scorers, evaluate.fractions), evaluate)
        return sum(len(line.rules) for line in lines)

    return count({*UNTRAINED, *SCORERS} - INPUTS.keys()), count(INPUTS)


def in_words(minutes: Mapping[str, float]) -> str:
    """Format minutes by stage: `rivals 3 min, label under 1 min`."""
    return ", ".join(f"{stage} {about(number)}" for stage, number in minutes.items())


def about(minutes: float) -> str:
    """Format a number of minutes."""
    return f"{minutes:,.0f} min" if minutes >= 1 else "under 1 min"
