"""Run each model alone and the rivals of routing, once for all iterations."""

from collections.abc import Iterable
from itertools import islice
from statistics import fmean

from citer.config.params import Params
from citer.errors import InputError
from citer.evaluation.evidence import too_few
from citer.evaluation.measure import FIDELITY, Conditions, Measure
from citer.evaluation.methods import Kind, Row, label
from citer.evaluation.points import RIVALS_STAMP, write_findings
from citer.evaluation.study import Study
from citer.models.device import announce
from citer.models.outlined import open_pair
from citer.pairs.floor import shortfalls, shown
from citer.progress import say
from citer.stages import paths
from citer.stages.asked import Asked, partial_sweeps
from citer.stages.lessons import Preference, lesson_inputs
from citer.storage.tables import remove, replacing

UNSTABLE = 0.01  # share of the LLM's answers that may differ from the stored ones
EXAMPLES = 3  # wrong answers to print if the LLM is right too rarely


def run(params: Params) -> None:
    """Answer validation and test without a router. Train the rivals that learn.

    A killed run resumes at its unfinished part of the questions.
    Raises InputError if a question and its longest answer exceed the models' context, if the
    questions are not all of one measure, or if the LLM is certainly right on too few validation
    questions.
    """
    announce("rivals", params.pair)
    asked = Asked.read(params)
    measure = Conditions.stored(asked.stamp).measure
    inputs = lesson_inputs(params.evaluate.rivals, params.train, params.seed, asked.identity)
    partial = partial_sweeps("rivals", params, asked.identity, *inputs)
    pair, executor = open_pair(asked.folders, params.pair, params.workers)
    settings = params.evaluate, params.decode, params.seed
    study = Study(executor, pair, asked.validation, asked.test, *settings, partial)
    if measure is FIDELITY:
        _check_references(study)
    else:
        _check_llm(study)
    _warn(study)
    findings = study.rivals(Preference(params.train, study))
    with replacing(paths.RIVALS) as aside:
        aside.mkdir()
        write_findings(aside, findings, params.evaluate, asked.stamp | RIVALS_STAMP)
    remove(partial)
    for line in (_summary(findings.points, measure), *map(str, findings.failures)):
        say(line)


def _check_llm(study: Study) -> None:
    """Warn if the LLM is right too rarely. Raise InputError if this is certain, as `probe` does.

    Before the error, wrong answers of the LLM are printed.
    """
    _, (llm,), *_ = study.alone_runs
    below = list(shortfalls(llm.results, study.params.llm_floor))
    for short in below:
        if not short.is_certain:
            say(f"rivals: {short.doubt}", style="yellow")
    certain = [short for short in below if short.is_certain]
    if not certain:
        return
    tasks = {short.task for short in certain}
    wrong = (r for r in llm.results if r.problem.task in tasks and not r.correct)
    for result in islice(wrong, EXAMPLES):
        say(shown(result.problem, study.pair.text(result.token_ids), result.truncated))
    raise InputError(f"rivals: {'; '.join(map(str, certain))} (evaluate.llm_floor)")


def _check_references(study: Study) -> None:
    """Say that there is no floor. Warn if the LLM's answers often differ from the stored ones."""
    say("rivals: measured by fidelity to the LLM, so evaluate.llm_floor does not apply")
    _, (llm,), *_ = study.alone_runs
    differing = fmean(not result.correct for result in llm.results)
    if differing > UNSTABLE:
        say(
            f"validation: {differing:.1%} of the LLM's answers differ from its stored ones, so the "
            "references are unstable (another batch or a lower precision), and every promise "
            "includes this share",
            style="yellow",
        )


def _warn(study: Study) -> None:
    """Warn now, hours before `choose`, if no rule can be certified."""
    _, (llm,), *_ = study.alone_runs
    right, promised = (r.correct for r in llm.results), (study.params.epsilon, study.params.delta)
    if few := too_few(right, study.conditions.measure, *promised):
        say(few, style="yellow")


def _summary(points: Iterable[Row], measure: Measure) -> str:
    """Return what each model alone achieves, which the user sees before the long stages."""
    alone = [row for row in points if row["kind"] == Kind.ALONE and row["task"] == "all"]
    shares = [
        f"{label(row['method'])} {row['accuracy']:.1%} {measure.correct}, "
        f"{row['truncated_share']:.1%} cut off"
        for row in alone
    ]
    return f"rivals, on test: {'; '.join(shares)}"
