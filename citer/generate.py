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
from citer.data.importing import load_problems, read_rows
from citer.decoding.answer import Counts
from citer.errors import InputError
from citer.io import replacing, write_table
from citer.models.bundle import identity
from citer.progress import progress
from citer.rule import Rule
from citer.schema import DISAGREEMENT
from citer.serving import Deployment, Reply, deploy, stored_rule
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
    problems = list(load_problems(source, _task(source), need="question"))
    if not problems:
        raise InputError(f"{source}: no questions")
    deployment = deploy(
        bundle,
        paths.SLM,
        Path(params.pair.llm),
        params.pair,
        rule,
        slots=params.evaluate.slots,
        max_new_tokens=params.evaluate.max_new_tokens,
    )
    replies = _shown(deployment.replies(problems), total=len(problems))
    ordered = sorted(replies, key=lambda reply: reply.number)
    with replacing(output) as aside, aside.open("w") as file:
        for reply in ordered:
            file.write(json.dumps(_line(reply, deployment), ensure_ascii=False) + "\n")
    if disagreements:
        _write_disagreements(disagreements, ordered, deployment)
    Console().print(_summary(ordered, rule, output), highlight=False)


def _task(source: Path) -> str:
    """The format says the task: math has a `problem`, multiple choice a `question`."""
    _, first = next(read_rows(source), (0, {}))
    return "math" if isinstance(first, dict) and "problem" in first else "mc"


def _shown(replies: Iterable[Reply], total: int) -> Iterator[Reply]:
    with progress("generate", total, "answers") as advance:
        for reply in replies:
            advance(1)
            yield reply


def _line(reply: Reply, deployment: Deployment) -> dict[str, Any]:
    answer, problem = reply.answer, reply.problem
    return {
        "problem_id": problem.problem_id,
        "question": problem.question,
        "correct": reply.correct,
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


def _summary(replies: Sequence[Reply], rule: Rule, output: Path) -> str:
    total = Counts.total(reply.answer.counts for reply in replies)
    graded = [reply.correct for reply in replies if reply.correct is not None]
    verdict = f"{sum(graded)} of {len(graded)} right" if graded else "no answers to grade against"
    said = (
        f"{output}: {len(replies)} answers by `{rule:.4g}`, {verdict}, "
        f"{total.llm_tokens / total.tokens:.1%} of {total.tokens:,} tokens by the LLM"
    )
    if not rule.audit:
        return said
    agreed = total.audited - total.disagreed
    return (
        f"{said}; of {total.audited:,} audited tokens {agreed:,} agreed, "
        f"{total.rejected:,} were rolled back"
    )
