"""Answer a file of questions, record which model wrote each token, and grade the answers."""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from citer.config.params import Params
from citer.data.importing import load_problems
from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, Grade, assess, failures
from citer.decoding.answer import Counts
from citer.errors import InputError, reading
from citer.models.bundle import read_card
from citer.models.room import check_room
from citer.models.sampling import Sampler
from citer.progress import progress, say
from citer.rule import Rule
from citer.serving.deployment import Deployment, Reply, deploy, served_pair, stored_rule
from citer.serving.log import Decode
from citer.storage.code import code_digest
from citer.storage.tables import check_target, digest, replacing, whole_lines, writing


class Graded(NamedTuple):
    counts: Counts
    correct: bool | None  # None if the right answer is unknown
    failure: tuple[str, str, str | None]  # task, problem_id, why the grader failed


def generate(
    params: Params, bundle: Path, source: Path, output: Path, rule: Rule | None = None
) -> None:
    """Answer every question of `source`, and write one JSON line per answer to `output`.

    `rule` replaces the rule of the bundle. Answers are sampled as in the evaluation. A killed call
    is resumed if the arguments, the maximum length of an answer and the code are the same. Raises
    InputError.
    """
    rule = rule or stored_rule(bundle)
    with reading(source):
        source.stat()  # a missing input is reported before a router that cannot be read
    rows = load_problems(source, read_card(bundle).prompts.tasks, requires="question")
    check_target(output)
    if output.resolve() == source.resolve():
        raise InputError(f"{output}: expected another file than the input")
    limits, sampler = params.answer, Sampler(params.evaluate.sampling, params.seed)
    named = ((f"{source}:{line}", problem) for line, problem in rows)
    folders = served_pair(bundle, params.pair)
    check_room(named, folders, limits.max_new_tokens, "answer.max_new_tokens")
    deployment = deploy(bundle, folders, params.pair, rule, limits)
    settings = f"{rule} {limits.max_new_tokens}{sampler}", code_digest("evaluate")
    answered = _partial(output, digest(source, *sorted(bundle.glob("router.*")), *settings))
    with _alone(answered, output), writing(output):
        _answer([problem for _, problem in rows], deployment, answered, sampler)
        graded = _deliver(answered, output)
        summary = _summary(graded, rule, output, sampler)
        answered.unlink()
    say(summary)


def _partial(output: Path, key: str) -> Path:
    """Return the file that collects this call's answers. Remove such files of other calls."""
    chosen = output.with_name(f".{output.name}.{key[:12]}.partial")
    for other in output.parent.glob(f".{escape(output.name)}.{'[0-9a-f]' * 12}.partial"):
        if other != chosen:
            with _alone(other, output):
                other.unlink()
    return chosen


@contextmanager
def _alone(answered: Path, output: Path) -> Iterator[None]:
    """Lock the output. Raises InputError if another call is writing it."""
    with answered.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{output}: another `citer generate` is writing it") from None
        yield


def _answer(
    problems: Sequence[Problem], deployment: Deployment, answered: Path, sampler: Sampler
) -> None:
    """Append one line per answer, in order, after the lines of a killed call."""
    done = whole_lines(answered)
    with (
        progress("generate", len(problems), "answers", done) as advance,
        answered.open("a", encoding="utf-8") as file,
    ):
        for reply in deployment.replies(problems[done:], advance, sampler):
            stored = line(reply, deployment.pair.tokenizer.decode)
            file.write(json.dumps(stored, ensure_ascii=False) + "\n")
            file.flush()


def line(reply: Reply, decode: Decode) -> dict[str, Any]:
    """Return an answer as JSON. `task` and `failure` are for the summary."""
    answer, problem, grade = reply.answer, reply.problem, _graded(reply)
    return {
        "task": problem.task,
        "problem_id": problem.problem_id,
        "question": problem.question,
        "correct": grade and grade.correct,
        "failure": grade and grade.failure,
        **reply.fields,
        "written": [
            {"text": decode([token]), "by": writer}
            for token, writer in zip(answer.token_ids, answer.writers, strict=True)
        ],
    }


def _graded(reply: Reply) -> Grade | None:
    """Grade a reply. A truncated answer is wrong. Returns None if the right answer is unknown."""
    if reply.problem.answer is None:
        return None
    return WRONG if reply.answer.truncated else assess(reply.problem, reply.completion)


def _deliver(answered: Path, output: Path) -> list[Graded]:
    """Write the answers. Return counts and grades."""
    graded: list[Graded] = []
    with (
        answered.open(encoding="utf-8") as lines,
        replacing(output) as aside,
        aside.open("w", encoding="utf-8") as file,
    ):
        for stored in map(json.loads, lines):
            failure = stored.pop("task"), stored["problem_id"], stored.pop("failure")
            file.write(json.dumps(stored, ensure_ascii=False) + "\n")
            counts = Counts(*(stored[name] for name in Counts._fields))
            graded.append(Graded(counts, stored["correct"], failure))
    return graded


def _summary(graded: Sequence[Graded], rule: Rule, output: Path, sampler: Sampler) -> str:
    total = Counts.total(each.counts for each in graded)
    known = [each.correct for each in graded if each.correct is not None]
    verdict = f"{sum(known)} of {len(known)} right" if known else "no answers to grade against"
    text = (
        f"{output}: {len(graded)} answers by `{rule:.4g}`{sampler}, {verdict}, "
        f"{total.llm_tokens / total.tokens:.1%} of {total.tokens:,} tokens by the LLM"
    )
    if rule.audit:
        agreed = total.audited - total.disagreed
        text += (
            f"; of {total.audited:,} audited tokens {agreed:,} agreed, "
            f"{total.rejected:,} audits rejected a token"
        )
    return "; ".join([text, *map(str, failures(each.failure for each in graded))])
