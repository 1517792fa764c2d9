"""Questions in, answers out: routed, with each token's origin, graded where an answer is known.

Where the LLM's audits disagree with the SLM is known of every answer, graded or not: these tokens
can be written to a table, and become labels.
"""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console

from citer.closure import code_digest
from citer.config import Params
from citer.data.importing import load_problems, task_of_file
from citer.data.problems import Problem
from citer.data.tasks.grading import grade
from citer.decoding.answer import Counts
from citer.errors import InputError
from citer.io import check_target, digest, replacing, whole_lines, write_table
from citer.models.bundle import identity
from citer.models.room import check_room
from citer.progress import progress
from citer.rule import Rule
from citer.schema import DISAGREEMENT
from citer.serving import Deployment, Reply, deploy, served_pair, stored_rule
from citer.stages import paths


class Graded(NamedTuple):
    counts: Counts
    correct: bool | None  # None where no answer is known


def generate(
    params: Params,
    bundle: Path,
    source: Path,
    output: Path,
    rule: Rule | None = None,
    disagreements: Path | None = None,
) -> None:
    """Answer every question of `source` (the seeds' formats) into `output`, a JSON line each.

    `rule` stands in for the bundle's own. A table `disagreements` needs one that audits. A call
    that was killed is taken up where it was, if these, the answers' length and the code are alike.
    """
    rule = rule or stored_rule(bundle)
    if disagreements and not rule.audit:
        raise InputError(f"--disagreements: `{rule:.4g}` audits nothing, expected `… audit β`")
    rows = load_problems(source, task_of_file(source), need="question")
    limits = params.evaluate
    named = ((f"{source}:{line}", problem) for line, problem in rows)
    folders = served_pair(bundle, paths.SLM, Path(params.pair.llm))
    check_room(named, folders, limits.max_new_tokens)
    _check_targets(source, output, *([disagreements] if disagreements else []))
    deployment = deploy(
        bundle,
        folders,
        params.pair,
        rule,
        slots=limits.slots,
        max_new_tokens=limits.max_new_tokens,
    )
    settings = f"{rule} {limits.max_new_tokens}", code_digest("evaluate")
    answered = _partial(output, digest(source, *sorted(bundle.glob("router.*")), *settings))
    with _alone(answered, output):
        _answer([problem for _, problem in rows], deployment, answered)
        said = _summary(_deliver(answered, output, disagreements, deployment), rule, output)
        answered.unlink()
    Console().print(said, highlight=False, soft_wrap=True)


def _check_targets(source: Path, *targets: Path) -> None:
    for target in targets:
        check_target(target)
    if len({path.resolve() for path in (source, *targets)}) <= len(targets):
        raise InputError(f"{targets[0]}: expected a file of its own, which nothing else is")


def _correct(reply: Reply) -> bool | None:
    """None where no answer is known; a truncated one is wrong."""
    if reply.problem.answer is None:
        return None
    return not reply.answer.truncated and grade(reply.problem, reply.completion)


def _partial(output: Path, asked: str) -> Path:
    """The file of the answers so far; those to anything else are removed."""
    chosen = output.with_name(f".{output.name}.{asked[:12]}.partial")
    for other in output.parent.glob(f".{escape(output.name)}.*.partial"):
        if other != chosen:
            with _alone(other, output):
                other.unlink()
    return chosen


@contextmanager
def _alone(answered: Path, output: Path) -> Iterator[None]:
    """Raise InputError while another call writes answers to the same output."""
    with answered.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{output}: another `citer generate` is writing it") from None
        yield


def _answer(problems: Sequence[Problem], deployment: Deployment, answered: Path) -> None:
    """Append a line an answer, in order, to those that a killed call has left."""
    done = whole_lines(answered)
    with (
        progress("generate", len(problems), "answers", done) as advance,
        answered.open("a", encoding="utf-8") as file,
    ):
        for reply in deployment.replies(problems[done:], advance):
            file.write(json.dumps(_line(reply, deployment), ensure_ascii=False) + "\n")
            file.flush()


def _line(reply: Reply, deployment: Deployment) -> dict[str, Any]:
    """An answer, and under `disagreements` what goes to a table of their own."""
    answer, problem = reply.answer, reply.problem
    return {
        "problem_id": problem.problem_id,
        "question": problem.question,
        "correct": _correct(reply),
        **reply.fields,
        "written": [
            {"text": deployment.pair.tokenizer.decode([token]), "by": "llm" if by_llm else "slm"}
            for token, by_llm in zip(answer.token_ids, answer.by_llm, strict=True)
        ],
        "disagreements": list(_disagreements(reply, deployment)),
    }


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


def _deliver(
    answered: Path, output: Path, disagreements: Path | None, deployment: Deployment
) -> list[Graded]:
    """Write the answers, and the table where one is asked for; returns what sums them up."""
    graded: list[Graded] = []
    found: list[dict[str, Any]] = []
    with (
        answered.open(encoding="utf-8") as lines,
        replacing(output) as aside,
        aside.open("w", encoding="utf-8") as file,
    ):
        for line in map(json.loads, lines):
            differing = line.pop("disagreements")
            found += differing if disagreements else []
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            counts = Counts(*(line[name] for name in Counts._fields))
            graded.append(Graded(counts, line["correct"]))
    if disagreements:
        stamp = identity(deployment.pair) | {"rule": str(deployment.policy.rule)}
        table = pa.Table.from_pylist(found, DISAGREEMENT)
        write_table(disagreements, table, DISAGREEMENT, stamp)
    return graded


def _summary(graded: Sequence[Graded], rule: Rule, output: Path) -> str:
    total = Counts.total(counts for counts, _ in graded)
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
