"""Run each model alone, the bounds, and the candidates that are the same for all iterations."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from citer.config.params import Params
from citer.data.problems import Problem, first_id, read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.decoding.policy import Scorer
from citer.errors import InputError
from citer.evaluation.bounds import LEARNS, Lessons, NothingToLearnError
from citer.evaluation.candidates import UNTRAINED
from citer.evaluation.choice import too_few
from citer.evaluation.measure import ACCURACY, FIDELITY, Measure
from citer.evaluation.methods import Kind, Row, label
from citer.evaluation.points import RIVALS_STAMP, write_findings
from citer.evaluation.study import Study
from citer.evaluation.sweep import Result
from citer.models.bundle import check_identity, read_bundle
from citer.pairs.hints import shortfalls
from citer.progress import say
from citer.stages import paths
from citer.stages.asked import Asked
from citer.storage.tables import digest, remove, replacing

UNSTABLE = 0.01  # share of the LLM's answers that may differ from the stored ones


def run(params: Params) -> None:
    """Answer by each model alone, the bounds, and all candidates that need no preferences.

    A killed run resumes at its unfinished part of the questions.
    Raises InputError if a question and its longest answer exceed the models' context, if the
    questions are not all of one measure, or if the LLM is certainly right on too few validation
    questions.
    """
    asked = Asked.read(params)
    router, card = read_bundle(paths.COMMON)
    check_identity(card, asked.identity, paths.COMMON)
    inputs = _lesson_inputs(params.evaluate.bounds, asked.identity)
    study = asked.study("rivals", params, paths.COMMON, *inputs)
    _check(study)
    scorers: dict[str, Scorer] = {**UNTRAINED, **router.to(study.pair.slm.device).heads}
    findings = study.fixed(scorers, partial(lessons_of, study))
    with replacing(paths.RIVALS) as aside:
        write_findings(aside, findings, study.batches, asked.stamp | RIVALS_STAMP)
    remove(study.partial)
    for line in (_summary(findings.on_test, asked.measure), *map(str, findings.failures)):
        say(line)


def _lesson_inputs(bounds: Iterable[str], identity: dict[str, Any]) -> Iterator[str]:
    """Yield digests of what the bounds learn from, if one of them learns.

    Raises InputError if the tokens were scored by another pair than that of this `identity`.
    """
    if LEARNS in bounds:
        scored_by = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
        check_identity(scored_by, identity, paths.SLM_TOKENS)
        yield from map(digest, (paths.referenced("preference"), paths.SLM_TOKENS))


def lessons_of(study: Study) -> Lessons:
    """Read what a bound learns from, and run each model alone on the questions.

    Raises NothingToLearnError if no answer to them can be graded.
    """
    problems, pair = read_problems(paths.referenced("preference")), study.pair
    once: dict[str, Problem] = {}
    for problem in filter(lambda problem: problem.gradable, problems):
        once.setdefault(first_id(problem.problem_id), problem)
    if not once:
        raise NothingToLearnError("no preference question has an answer to grade against")
    alone, examples = study.alone_on([*once.values()]), pair.prompts.encode_all(problems)
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
    first = tokens.take(np.flatnonzero(tokens["position"].to_numpy() == 0))
    features, ids = read_features(paths.SLM_TOKENS, first), first["problem_id"].to_numpy()
    return Lessons(features, ids, alone)


def _check(study: Study) -> None:
    """Check what the LLM alone answers on validation, hours before `choose`.

    Warns if no rule can be certified, and if the LLM is right too rarely. Raises InputError if this
    is certain, as `probe` does. With fidelity there is no floor.
    """
    results, settings = study.alone_on(study.validation).llm.results, study.params.evaluate
    measure, promised = study.measure, (settings.epsilon, settings.delta)
    below = list(shortfalls(results, settings.llm_floor)) if measure is ACCURACY else []
    if certain := [short for short in below if short.is_certain]:
        raise InputError(f"rivals: {'; '.join(map(str, certain))} (evaluate.llm_floor)")
    for short in below:
        say(f"rivals: {short.doubt}", style="yellow")
    if measure is FIDELITY:
        _check_references(results)
    if few := too_few((r.correct for r in results), measure, *promised):
        say(few, style="yellow")


def _check_references(results: Sequence[Result]) -> None:
    """Say that there is no floor. Warn if the LLM's answers often differ from the stored ones."""
    say("rivals: measured by fidelity to the LLM, so evaluate.llm_floor does not apply")
    differing = fmean(not result.correct for result in results)
    if differing > UNSTABLE:
        say(
            f"validation: {differing:.1%} of the LLM's answers differ from its stored ones, so the "
            "references are unstable (another batch or a lower precision), and every promise "
            "includes this share",
            style="yellow",
        )


def _summary(points: Iterable[Row], measure: Measure) -> str:
    """Return what each model alone achieves, which the user sees before the long stages."""
    alone = [row for row in points if row["kind"] == Kind.ALONE and row["task"] == "all"]
    shares = [
        f"{label(row['method'])} {row['accuracy']:.1%} {measure.correct}, "
        f"{row['truncated_share']:.1%} cut off"
        for row in alone
    ]
    return f"rivals, on test: {'; '.join(shares)}"
