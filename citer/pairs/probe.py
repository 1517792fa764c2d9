"""Let each model alone answer a few questions of every task, and show answers and speed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, starmap
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from rich.table import Table

from citer.data.problems import Problem, seeded
from citer.data.tasks import task_label
from citer.data.tasks.grading import WRONG, assess, extracted, same
from citer.data.tasks.task import GraderError
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine, Finished
from citer.decoding.policy import Policy
from citer.errors import one_line
from citer.evaluation.methods import Row
from citer.evaluation.sweep import request
from citer.models.pair import Pair
from citer.pairs.budget import Pace
from citer.progress import Advance

QUESTIONS = 20  # of each task
WIDTH = 160  # characters of a line that is printed
EXAMPLES = 4  # answers to print, at least one of each task
VERDICTS = {True: "right", False: "wrong", None: "not graded"}


class Reply(NamedTuple):
    """One model's answer to a question."""

    problem: Problem
    text: str
    token_ids: tuple[int, ...]  # without EOS
    raw: str  # the text of `token_ids` with special tokens
    truncated: bool
    extracted: str | None  # what the grader read: "" for nothing, None if the task does not say
    correct: bool | None  # None: there is no answer to grade against
    failure: str | None  # why the grader failed
    prompt_tokens: int
    tokens: int  # of the answer, including EOS


class Asked(NamedTuple):
    """The replies of one model in the order of the questions, and its pace."""

    replies: Sequence[Reply]
    pace: Pace


def choose_questions(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Return QUESTIONS problems of each task, or all if there are fewer, ordered by task.

    A problem's rank depends on its id and the seed only, not on the other problems.
    """
    ranked = sorted(problems, key=lambda p: (p.task, seeded(p.problem_id, seed)))
    groups = groupby(ranked, key=lambda problem: problem.task)
    return [problem for _, group in groups for problem in islice(group, QUESTIONS)]


def ask(engine: Engine, problems: Sequence[Problem], policy: Policy, advance: Advance) -> Asked:
    """Answer all problems, as many at a time as the engine has slots. Grade those with answers.

    A long run fills the slots again and again. So its pace is that of the steps in which at least
    half of them are used.
    """
    pair = engine.pair
    requests = [request(problem, pair) for problem in problems]
    starts = range(0, len(requests), engine.slots)
    batches = [_timed(engine, requests[n : n + engine.slots], policy, advance) for n in starts]
    answers = {answer.key: answer for batch in batches for answer in batch.answers}
    lengths = {request.key: len(request.prompt_ids) for request in requests}
    later = [step for batch in batches for step in batch.steps[1:]]
    full = [step for step in later if 2 * step.sequences >= engine.slots]
    pace = Pace(
        sum(batch.steps[0].seconds for batch in batches) / sum(lengths.values()),
        sum(step.seconds for step in full) / max(1, sum(step.sequences for step in full)),
    )
    replies = [_reply(p, answers[p.problem_id], lengths[p.problem_id], pair) for p in problems]
    return Asked(replies, pace)


class _Step(NamedTuple):
    sequences: int  # that were not finished before it
    seconds: float


class _Batch(NamedTuple):
    answers: Sequence[Answer]
    steps: Sequence[_Step]  # the first reads the prompts and writes the first tokens


def _timed(engine: Engine, batch: Sequence[Request], policy: Policy, advance: Advance) -> _Batch:
    for each in batch:
        engine.submit(each, policy)
    answers: list[Answer] = []
    steps: list[_Step] = []
    while len(answers) < len(batch):
        sequences, start = len(batch) - len(answers), perf_counter()
        finished = [event.answer for event in engine.step() if isinstance(event, Finished)]
        steps.append(_Step(sequences, perf_counter() - start))
        advance(len(finished))
        answers += finished
    return _Batch(answers, steps)


def _reply(problem: Problem, answer: Answer, prompt_tokens: int, pair: Pair) -> Reply:
    text = pair.text(answer.token_ids)
    correct, failure = None, None
    if problem.answer is not None:
        correct, _, failure = WRONG if answer.truncated else assess(problem, text)
    written = tuple(token for token in answer.token_ids if token not in pair.eos_ids)
    return Reply(
        problem=problem,
        text=text,
        token_ids=written,
        raw=str(pair.tokenizer.decode(list(written))),
        truncated=answer.truncated,
        extracted=extracted(problem, text),
        correct=correct,
        failure=failure,
        prompt_tokens=prompt_tokens,
        tokens=len(answer.token_ids),
    )


def reply_rows(model: str, replies: Iterable[Reply]) -> Iterator[Row]:
    """Yield a row for each reply of a model, with the columns of PROBED among others."""
    for reply in replies:
        problem = {"problem_id": reply.problem.problem_id, "task": reply.problem.task}
        yield {**reply._asdict(), **problem, "model": model}


def graded(replies: Iterable[Reply]) -> list[Reply]:
    """Return the replies to questions that have an answer."""
    return [reply for reply in replies if reply.correct is not None]


def by_task(replies: Iterable[Reply]) -> dict[str, list[Reply]]:
    """Group replies, which are ordered by task."""
    groups = groupby(replies, key=lambda reply: reply.problem.task)
    return {task: list(group) for task, group in groups}


def overview(slm: Sequence[Reply], llm: Sequence[Reply]) -> Table:
    """Make a table with two rows per task: the LLM, and the SLM compared with it."""
    table = Table("task", "model", title="Validation questions, answered by each model alone")
    for column in ("right", "cut off", "tokens", "same text", "same answer"):
        table.add_column(column, justify="right")
    weak = by_task(slm)
    for task, replies in by_task(llm).items():
        pairs = list(zip(weak[task], replies, strict=True))
        texts = sum(one.token_ids == other.token_ids for one, other in pairs)
        answers = sum(starmap(_same, pairs))
        table.add_row(task_label(task), "LLM", *_numbers(replies))
        table.add_row("", "SLM", *_numbers(weak[task]), str(texts), str(answers))
    return table


def _numbers(replies: Sequence[Reply]) -> list[str]:
    judged = graded(replies)
    right = sum(reply.correct is True for reply in judged)
    return [
        f"{right} of {len(judged)}" if judged else "-",
        f"{sum(reply.truncated for reply in replies)} of {len(replies)}",
        f"{fmean(reply.tokens for reply in replies):.0f}",
    ]


def _same(one: Reply, other: Reply) -> bool:
    """Whether two finished replies to a question give the same answer."""
    if one.truncated or other.truncated:
        return False
    try:
        return same(one.problem, one.text, other.text)
    except GraderError:
        return False


def examples(llm: Sequence[Reply]) -> str:
    """Show answers of each task, wrong ones first."""
    tasks = by_task(llm)
    count = max(1, EXAMPLES // len(tasks))
    return "\n".join(
        f"{task_label(task)}, {VERDICTS[reply.correct]}:\n"
        + shown(reply.problem, reply.text, reply.truncated)
        for task, replies in tasks.items()
        for reply in sorted(replies, key=lambda reply: reply.correct is not False)[:count]
    )


def shown(problem: Problem, text: str, truncated: bool) -> str:
    """Show a question, the LLM's answer, what the grader read, and the expected answer.

    There is no line for what was read if the task does not say it, and none without an answer.
    """
    read = extracted(problem, text)
    return (
        f"question: {_line(problem.question)}\n"
        f"     LLM: {_line(text)}{' (cut off)' if truncated else ''}\n"
        + ("" if read is None else f"    read: {_line(read) or 'nothing'}\n")
        + ("" if problem.answer is None else f"expected: {_line(problem.answer)}\n")
    )


def _line(text: str) -> str:
    """Write a text of a model in one line. Its control characters would act on a terminal."""
    return one_line(" ".join(text.split()), WIDTH)


def speed(slm: Pace, llm: Pace, batch: int) -> str:
    """Format tokens per second."""
    models = ", ".join(
        f"{name} {_rate(pace.prompt)} prompt and {_rate(pace.answer)} answer tokens"
        for name, pace in (("SLM", slm), ("LLM", llm))
    )
    return f"{models} a second, {batch} questions at once"


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}" if seconds else "no"
