"""The measure of a study: against what an answer is graded, and in which words reports say so.

A problem with an answer is graded against it (accuracy). A problem without one is compared with the
LLM's own answer, its reference (fidelity). All questions of a study are of one kind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from citer.config.params import SamplingParams
from citer.data.problems import Problem
from citer.errors import InputError

GREEDY = "greedy"


@dataclass(frozen=True)
class Measure:
    """The share of correct answers, by its name, with the sentences that count them.

    `correct` is the word for a correct answer, `better` for a method with more of them. `risk` is
    the probability that the promise bounds. If `every_question`, the promise counts all questions,
    else those that the LLM answers right. `n` is the number of these, `lost` of the incorrect
    routed answers among them.
    """

    name: str
    correct: str
    better: str
    risk: str
    every_question: bool
    on_validation: str
    on_test: str
    counted: str
    legend: str = ""

    def counts(self, llm_correct: bool) -> bool:
        """Return whether the promise counts a question, on which the LLM is correct or not."""
        return self.every_question or llm_correct

    def key(self, name: str) -> str:
        """Return the name of a column or metric on disk. In memory it is that of the accuracy."""
        return name.replace(ACCURACY.name, self.name)

    def keys(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with its names on disk."""
        return {self.key(name): value for name, value in row.items()}


ACCURACY = Measure(
    name="accuracy",
    correct="right",
    better="accurate",
    risk="P(routed wrong | LLM right)",
    every_question=False,
    on_validation="the LLM answers {n} questions right, and the routed answer is wrong on {lost} "
    "of them",
    on_test="wrong on {lost} of the {n} test questions that the LLM answers right",
    counted="the LLM is right on {n} questions",
)
FIDELITY = Measure(
    name="fidelity",
    correct="faithful",
    better="faithful",
    risk="P(answer differs from the LLM's)",
    every_question=True,
    on_validation="the routed answer differs from the LLM's on {lost} of {n} questions",
    on_test="the answer differs from the LLM's on {lost} of {n} test questions",
    counted="there are {n} questions",
    legend="Fidelity: the share of answers that are the same as the LLM's own, right or wrong.\n",
)
MEASURES = {measure.name: measure for measure in (ACCURACY, FIDELITY)}


class Conditions(NamedTuple):
    """The measure of a study, and how its answers were sampled.

    Two studies under different conditions are not compared. `llm` and `prompts` are the digests of
    the LLM whose answers fidelity is measured against, and of its prompts; empty for accuracy.
    """

    measure: Measure = ACCURACY
    sampling: str = GREEDY
    llm: str = ""
    prompts: str = ""

    def __str__(self) -> str:
        return f"{self.measured}, {self.sampling}"

    @classmethod
    def of(
        cls,
        problems: Iterable[Problem],
        sampling: SamplingParams | None,
        identity: Mapping[str, Any],
    ) -> "Conditions":
        """`identity` is the pair's. Raises InputError if the problems are not of one measure."""
        measure = _measure(problems)
        against = (identity["llm"]["digest"], identity["template"]) if measure is FIDELITY else ()
        return cls(measure, sampling_text(sampling), *against)

    @classmethod
    def stored(cls, fields: Mapping[str, Any]) -> "Conditions":
        """Read the fields of a stamp, or the tags of a version.

        Raises InputError for an unknown measure.
        """
        name = fields.get("measure")
        if name not in MEASURES:
            raise InputError(f"measure: {name!r}; expected {' or '.join(map(repr, MEASURES))}")
        against = fields.get("measure_llm", ""), fields.get("measure_prompts", "")
        return cls(MEASURES[name], fields["sampling"], *against)

    @property
    def fields(self) -> dict[str, str]:
        """What `stored` reads: the fields of a stamp. Those of fidelity may be missing."""
        stored = {"measure": self.measure.name, "sampling": self.sampling}
        against = {"measure_llm": self.llm, "measure_prompts": self.prompts}
        return stored | {field: value for field, value in against.items() if value}

    @property
    def measured(self) -> str:
        """The measure for people: `accuracy`, or `fidelity to LLM 1a2b3c4, prompts 5d6e7f8`."""
        llm = f" to LLM {self.llm[:7]}" if self.llm else ""
        prompts = f", prompts {self.prompts[:7]}" if self.prompts else ""
        return f"{self.measure.name}{llm}{prompts}"


def _measure(problems: Iterable[Problem]) -> Measure:
    found: dict[Measure, Problem] = {}
    for problem in problems:
        if problem.answer is None and problem.written_by != "llm":
            raise InputError(
                f"{problem.split} problem {problem.problem_id}: neither an answer nor one of the "
                "LLM's; run `citer references`"
            )
        found.setdefault(FIDELITY if problem.answer is None else ACCURACY, problem)
    if len(found) > 1:
        graded, compared = found[ACCURACY], found[FIDELITY]
        raise InputError(
            f"{compared.split} problem {compared.problem_id}: no answer, but {graded.split} "
            f"problem {graded.problem_id} has one; expected all questions of validation and test "
            "to have an answer, or none; run `citer references`"
        )
    return next(iter(found), ACCURACY)


def sampling_text(sampling: SamplingParams | None) -> str:
    """Describe how tokens are chosen: `greedy`, or `temperature 0.7, top-p 0.9`."""
    if sampling is None:
        return GREEDY
    return ", ".join(
        f"{name.replace('_', '-')} {value:g}"
        for name, value in sampling.model_dump(exclude_none=True).items()
    )
