"""Questions in, answers out: routed, with each token's origin, graded where an answer is known.

Where the LLM's audits disagree with the SLM is known of every answer, graded or not: these tokens
can be written to a table, and become labels.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from citer.config import Params
from citer.data.answers import grade
from citer.data.importing import RowError, load_problems, read_rows, task_of
from citer.decoding.answer import Counts
from citer.errors import InputError
from citer.io import check_target, replacing, write_table
from citer.models.bundle import identity
from citer.models.room import check_room
from citer.progress import progress
from citer.rule import Rule
from citer.schema import DISAGREEMENT
from citer.serving import Deployment, Reply, deploy, served_slm, stored_rule
from citer.stages import paths


def generate(
    params: Params,
    bundle: Path,
    source: Path,
    output: Path,
    rule: Rule | None = None,
    disagreements: Path | None = None,
) -> None:
    """Answer every question of `source` (the seeds' formats) into `output`, a JSON line each.

    `rule` stands in for the bundle's own. A table `disagreements` needs one that audits.
    """
    rule = rule or stored_rule(bundle)
    if disagreements and not rule.audit:
        raise InputError(f"--disagreements: `{rule:.4g}` audits nothing, expected `… audit β`")
    rows = load_problems(source, _task(source), need="question")
    llm, limits = Path(params.pair.llm), params.evaluate
    named = ((f"{source}:{line}", problem) for line, problem in rows)
    check_room(named, served_slm(bundle, paths.SLM), llm, limits.max_new_tokens)
    _check_targets(source, output, *([disagreements] if disagreements else []))
    deployment = deploy(
        bundle,
        paths.SLM,
        llm,
        params.pair,
        rule,
        slots=limits.slots,
        max_new_tokens=limits.max_new_tokens,
    )
    with progress("generate", len(rows), "answers") as advance:
        replies = deployment.replies([problem for _, problem in rows], advance)
    graded = [(reply, _correct(reply)) for reply in replies]
    with replacing(output) as aside, aside.open("w", encoding="utf-8") as file:
        for reply, correct in graded:
            file.write(json.dumps(_line(reply, correct, deployment), ensure_ascii=False) + "\n")
    if disagreements:
        _write_disagreements(disagreements, replies, deployment)
    Console().print(_summary(graded, rule, output), highlight=False, soft_wrap=True)


def _check_targets(source: Path, *targets: Path) -> None:
    for target in targets:
        check_target(target)
    if len({path.resolve() for path in (source, *targets)}) <= len(targets):
        raise InputError(f"{targets[0]}: expected a file of its own, which nothing else is")


def _task(source: Path) -> str:
    """The first row's, for all."""
    for line, row in read_rows(source):
        try:
            return task_of(row)
        except RowError as error:
            raise error.at(f"{source}:{line}") from None
    return "math"  # no rows, which reading tells


def _correct(reply: Reply) -> bool | None:
    """None where no answer is known; a truncated one is wrong."""
    if reply.problem.answer is None:
        return None
    return not reply.answer.truncated and grade(reply.problem, reply.completion)


def _line(reply: Reply, correct: bool | None, deployment: Deployment) -> dict[str, Any]:
    answer, problem = reply.answer, reply.problem
    return {
        "problem_id": problem.problem_id,
        "question": problem.question,
        "correct": correct,
        **reply.told,
        "written": [
            {"text": deployment.pair.tokenizer.decode([token]), "by": "llm" if by_llm else "slm"}
            for token, by_llm in zip(answer.token_ids, answer.by_llm, strict=True)
        ],
    }


def _write_disagreements(path: Path, replies: Iterable[Reply], deployment: Deployment) -> None:
    rows = [row for reply in replies for row in _disagreements(reply, deployment)]
    stamp = identity(deployment.pair) | {"rule": str(deployment.policy.rule)}
    write_table(path, pa.Table.from_pylist(rows, DISAGREEMENT), DISAGREEMENT, stamp)


def _disagreements(reply: Reply, deployment: Deployment) -> Iterator[dict[str, Any]]:
    decode = deployment.pair.tokenizer.decode
    for visit in reply.answer.visits:
        for found in visit.disagreements:
            yield {
                "problem_id": reply.problem.problem_id,
                **found._asdict(),
                "slm_text": decode([found.slm_token]),
                "llm_text": decode([found.llm_token]),
                "rejected": found.position == visit.kept,
            }


def _summary(graded: Sequence[tuple[Reply, bool | None]], rule: Rule, output: Path) -> str:
    total = Counts.total(reply.answer.counts for reply, _ in graded)
    known = [correct for _, correct in graded if correct is not None]
    verdict = f"{sum(known)} of {len(known)} right" if known else "no answers to grade against"
    said = (
        f"{output}: {len(graded)} answers by `{rule:.4g}`, {verdict}, "
        f"{total.llm_tokens / total.tokens:.1%} of {total.tokens:,} tokens by the LLM"
    )
    if not rule.audit:
        return said
    agreed = total.audited - total.disagreed
    return (
        f"{said}; of {total.audited:,} audited tokens {agreed:,} agreed, "
        f"{total.rejected:,} were rolled back"
    )
