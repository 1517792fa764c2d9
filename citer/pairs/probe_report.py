"""What `probe` prints: a table of both models, some answers of the LLM, the pace of each model."""

from collections.abc import Sequence
from itertools import starmap
from statistics import fmean

from rich.table import Table

from citer.data.tasks import find_task, task_label
from citer.data.tasks.task import GraderError
from citer.pairs.floor import shown
from citer.pairs.probe import Pace, Reply, by_task, graded

EXAMPLES = 4  # answers to print, at least one of each task
VERDICTS = {True: "right", False: "wrong", None: "not graded"}


def overview(slm: Sequence[Reply], llm: Sequence[Reply]) -> Table:
    """Make a table with two rows per task: the LLM, and the SLM compared with it."""
    table = Table("task", "model", title="Validation questions, answered by each model alone")
    for column in ("right", "cut off", "tokens", "same text", "same answer"):
        table.add_column(column, justify="right")
    weak = by_task(slm)
    for task, replies in by_task(llm).items():
        table.add_row(task_label(task), "LLM", *_numbers(replies))
        table.add_row("", "SLM", *_numbers(weak[task]), *_equal(weak[task], replies))
    return table


def _numbers(replies: Sequence[Reply]) -> list[str]:
    judged = graded(replies)
    right = sum(reply.correct is True for reply in judged)
    return [
        f"{right} of {len(judged)}" if judged else "-",
        f"{sum(reply.truncated for reply in replies)} of {len(replies)}",
        f"{fmean(reply.tokens for reply in replies):.0f}",
    ]


def _equal(slm: Sequence[Reply], llm: Sequence[Reply]) -> list[str]:
    """Count equal texts and equal answers."""
    pairs = list(zip(slm, llm, strict=True))
    texts = sum(one.token_ids == other.token_ids for one, other in pairs)
    return [str(texts), str(sum(starmap(same_answer, pairs)))]


def same_answer(one: Reply, other: Reply) -> bool:
    """Whether two finished replies to a question give the same answer."""
    if one.truncated or other.truncated:
        return False
    try:
        return find_task(one.problem.task).same(one.problem, one.text, other.text)
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


def speed(slm: Pace, llm: Pace, batch: int) -> str:
    """Format tokens per second."""
    models = ", ".join(
        f"{name} {_rate(pace.prompt)} prompt and {_rate(pace.answer)} answer tokens"
        for name, pace in (("SLM", slm), ("LLM", llm))
    )
    return f"{models} a second, {batch} questions at once"


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}" if seconds else "no"
