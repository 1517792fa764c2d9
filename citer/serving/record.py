"""What is stored of a reply: a line of JSON, and a row of the table of audits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from citer.data.tasks.grading import WRONG, Grade, assess
from citer.decoding.answer import Visit
from citer.serving.deployment import Reply

Decode = Callable[[list[int]], str | list[str]]  # a tokenizer's
ASKED = ("problem_id", "task", "question", "choices", "messages", "answer")


def line(reply: Reply, decode: Decode) -> dict[str, Any]:
    """Return an answer as JSON.

    `audits` is a row of the schema AUDITED; `task` and `failure` are for the summary.
    """
    answer, problem, grade = reply.answer, reply.problem, _graded(reply)
    return {
        "task": problem.task,
        "problem_id": problem.problem_id,
        "question": problem.question,
        "correct": grade and grade.correct,
        "failure": grade and grade.failure,
        **reply.fields,
        "written": [
            {"text": decode([token]), "by": "llm" if by_llm else "slm"}
            for token, by_llm in zip(answer.token_ids, answer.by_llm, strict=True)
        ],
        "audits": audited_row(reply, decode),
    }


def _graded(reply: Reply) -> Grade | None:
    """Grade a reply. A truncated answer is wrong. Returns None if the right answer is unknown."""
    if reply.problem.answer is None:
        return None
    return WRONG if reply.answer.truncated else assess(reply.problem, reply.completion)


def audited_row(reply: Reply, decode: Decode) -> dict[str, Any]:
    """Return a reply as a row of the schema AUDITED."""
    problem, answer = asdict(reply.problem), reply.answer
    return {name: problem[name] for name in ASKED} | {
        "completion": reply.completion,
        "token_ids": answer.token_ids,
        "truncated": answer.truncated,
        "audited": list(audited_positions(answer.visits)),
        "disagreements": list(_disagreements(answer.visits, decode)),
    }


def audited_positions(visits: Sequence[Visit]) -> Iterator[int]:
    """Yield the positions of an answer at which an audit checked a token of the SLM, in order.

    At a rejected token's position stands the LLM's own, and the next visit begins after it. So no
    position is checked twice.
    """
    pending_from = 0
    for visit in visits:
        yield from range(pending_from, pending_from + visit.audited)
        pending_from = visit.kept + 1


def _disagreements(visits: Sequence[Visit], decode: Decode) -> Iterator[dict[str, Any]]:
    for visit in visits:
        for difference in visit.disagreements:
            yield {
                **difference._asdict(),
                "slm_text": decode([difference.slm_token]),
                "llm_text": decode([difference.llm_token]),
                "rejected": difference.position == visit.kept,
            }
