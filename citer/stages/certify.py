"""Test the promise of a rule on the server that runs it, such as vLLM with a speculator of its own.

The validation questions are asked twice: with the rule, and with the LLM alone. What this finds
holds for the whole server: its drafts, its batches and its precision.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AliasPath, BaseModel, Field

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.tasks.grading import WRONG, Grade, assess
from citer.errors import InputError
from citer.evaluation.choice import upper_bound
from citer.evaluation.measure import Conditions, Measure
from citer.models.served import ServedFolder, Server
from citer.progress import Advance, progress, say
from citer.rule import LLM
from citer.stages import paths
from citer.stages.folders import base_pair

DRAFTS = AliasPath("metrics", "speculative_decoding")
INVALID = "score 7"


class Written(BaseModel):
    """One choice of `/v1/completions`."""

    text: str
    finish_reason: str


class Drafts(BaseModel):
    """vLLM's counts of speculation."""

    num_spec_steps: int = 0
    num_accepted_draft_tokens: int = 0


class Completed(BaseModel):
    choices: Annotated[list[Written], Field(min_length=1)]
    drafts: Annotated[Drafts | None, Field(validation_alias=DRAFTS)] = None


class Answer(NamedTuple):
    grade: Grade
    drafts: Drafts


def certify(params: Params, url: str, rule: str) -> bool:
    """Ask the server, print what was found, and return whether the rule keeps the promise.

    Raises InputError if the server ignores rules, refuses this one or has several models, if the
    references of the questions are missing, or if they are not of one measure; TemporaryError if
    it does not answer.
    """
    if params.evaluate.sampling:
        raise InputError("certify: evaluate.sampling: expected null, the server is asked greedily")
    problems = read_problems(paths.referenced("validation"))
    measure = Conditions.of(problems, None, {"llm": {"digest": ""}, "template": ""}).measure
    ask = _Asking(params, ServedFolder(Path(params.pair.llm), server=Server(url)))
    ask.check_plugin(problems[0])
    ask(problems[0], rule)  # a refusal comes before any work
    with progress("certify", 2 * len(problems), "answers") as advance:
        routed = ask.all(problems, rule, advance)
        alone = ask.all(problems, f"{LLM}", advance)
    return _told(f"`{rule}` at {url}", measure, params, routed, alone)


class _Asking:
    """Asks a server one question by one rule, or `serve.batch` of many at once."""

    def __init__(self, params: Params, served: ServedFolder) -> None:
        self._server, self._prompts = served.server, base_pair(params).prompts
        self._clients = params.serve.batch
        self._common = {
            "model": served.listed.id,
            "max_tokens": params.decode.max_new_tokens,
            "temperature": 0,
            "stop": list(params.pair.stop),
        }

    def __call__(self, problem: Problem, rule: str) -> Completed:
        own = {"prompt": self._prompts.prompt_ids(problem), "citer": {"rule": rule}}
        return self._server.ask("/v1/completions", Completed, self._common | own)

    def check_plugin(self, problem: Problem) -> None:
        """Raise InputError if an invalid rule is answered: vLLM ignores unknown fields."""
        try:
            self(problem, INVALID)
        except InputError as error:
            if "status 400" in str(error):
                return
            raise
        expected = "expected a refusal, vLLM with the plugin of citer and its settings"
        raise InputError(f"{self._server}: answers by the invalid rule `{INVALID}`; {expected}")

    def all(self, problems: Sequence[Problem], rule: str, advance: Advance) -> list[Answer]:
        answers = []
        with ThreadPoolExecutor(self._clients) as pool:
            replies = pool.map(partial(self, rule=rule), problems)
            for problem, reply in zip(problems, replies, strict=True):
                answers.append(_graded(problem, reply))
                advance(1)
        return answers


def _graded(problem: Problem, reply: Completed) -> Answer:
    written = reply.choices[0]
    grade = WRONG if written.finish_reason == "length" else assess(problem, written.text)
    return Answer(grade, reply.drafts or Drafts())


def _told(
    named: str, measure: Measure, params: Params, routed: Sequence[Answer], alone: Sequence[Answer]
) -> bool:
    """Say what the promise is worth for this one rule, and return whether it is kept."""
    epsilon, delta = params.evaluate.epsilon, params.evaluate.delta
    pairs = zip(routed, alone, strict=True)
    counted = [own.grade.correct for own, llm in pairs if measure.counts(llm.grade.correct)]
    lost = counted.count(False)
    bound = upper_bound(lost, len(counted), delta)
    found = measure.on_validation.format(n=len(counted), lost=lost)
    kept = "kept" if bound <= epsilon else "not kept"
    steps = sum(each.drafts.num_spec_steps for each in routed)
    accepted = sum(each.drafts.num_accepted_draft_tokens for each in routed)
    say(f"{named}: {found}")
    certain = f"{measure.risk} ≤ {bound:.4f} at confidence {1 - delta:g}"
    say(f"{certain}; promised ≤ {epsilon:g}: {kept}")
    say(f"{accepted / max(1, steps):.2f} drafts accepted at each of {steps:,} visits")
    return bound <= epsilon
