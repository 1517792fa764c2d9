"""Questions in, answers out: routed, with each token's origin, graded where an answer is known."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from citer.config import Params
from citer.data.importing import load_problems, read_rows
from citer.errors import InputError
from citer.io import replacing
from citer.progress import progress
from citer.serving import Deployment, Reply, deploy
from citer.stages import paths


def generate(params: Params, bundle: Path, source: Path, output: Path, tau: float | None) -> None:
    """Answer every question of `source` (the seeds' formats) into `output`, a JSON line each."""
    problems = list(load_problems(source, _task(source), need="question"))
    if not problems:
        raise InputError(f"{source}: no questions")
    deployment = deploy(bundle, paths.SLM, Path(params.pair.llm), params.pair, tau)
    limits = params.evaluate
    replies = list(
        _shown(
            deployment.replies(problems, limits.slots, limits.max_new_tokens), total=len(problems)
        )
    )
    with replacing(output) as aside, aside.open("w") as file:
        for reply in sorted(replies, key=lambda reply: reply.number):
            file.write(json.dumps(_line(reply, deployment), ensure_ascii=False) + "\n")
    Console().print(_summary(replies, deployment.policy.tau, output), highlight=False)


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
        "completion": reply.completion,
        "correct": reply.correct,
        "truncated": answer.truncated,
        "llm_fraction": sum(answer.by_llm) / len(answer.by_llm),
        "tokens": [
            {"text": deployment.pair.tokenizer.decode([token]), "by": "llm" if by_llm else "slm"}
            for token, by_llm in zip(answer.token_ids, answer.by_llm, strict=True)
        ],
    }


def _summary(replies: list[Reply], tau: float, output: Path) -> str:
    tokens = sum(len(reply.answer.by_llm) for reply in replies)
    by_llm = sum(sum(reply.answer.by_llm) for reply in replies)
    graded = [reply.correct for reply in replies if reply.correct is not None]
    verdict = f"{sum(graded)} of {len(graded)} right" if graded else "no answers to grade against"
    return (
        f"{output}: {len(replies)} answers at τ {tau:.4g}, {verdict}, "
        f"{by_llm / tokens:.1%} of {tokens:,} tokens by the LLM"
    )
