"""Rows with `messages`, the turns of a conversation. The last turn is the question."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from citer.data.problems import Message, Problem, problem_key
from citer.data.tasks import find_task, in_order
from citer.data.tasks.rows import RowError, text
from citer.errors import shown

ROLES = ("system", "user", "assistant")
TURN = '{"role": "user", "content": "…"}'


def with_question(row: dict[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Return a row whose field of the question has the text of the last turn.

    It is the one of `tasks` with most fields whose other fields the row has. A row without
    `messages` is returned as it is, and so is the row of a user's task. Raises RowError.
    """
    turns = _turns(row)
    if not turns:
        return row
    all_fields = [find_task(task).fields for task in in_order(tasks)]
    fitting = (each for each in all_fields if {*each[1:]} <= row.keys())
    fields = max(fitting, key=len, default=all_fields[0])
    if not fields:
        return row
    field = fields[0]
    if row.get(field) not in (None, ""):
        raise RowError(field, "given besides `messages`", "one of both")
    return row | {field: turns[-1].content}


def with_earlier_turns(problem: Problem, row: dict[str, Any]) -> Problem:
    """Return the problem of a row with the turns before its question, which change its id."""
    earlier = tuple(_turns(row)[:-1])
    if not earlier:
        return problem
    key = problem_key(problem.task, problem.question, problem.choices, earlier)
    return replace(problem, problem_id=key, messages=earlier)


def _turns(row: dict[str, Any]) -> Sequence[Message]:
    """Return the checked turns of a row, none if it has no `messages`. Raises RowError."""
    value = row.get("messages")
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        raise RowError("messages", shown(value), f"a list of turns such as {TURN}")
    turns = [_turn(each, f"messages.{place}") for place, each in enumerate(value)]
    for place, turn in enumerate(turns):
        if turn.role == "system" and place:
            raise RowError(f"messages.{place}.role", "'system'", "a system turn only at the start")
    if turns[-1].role != "user":
        raise RowError(f"messages.{len(turns) - 1}.role", repr(turns[-1].role), "'user' at the end")
    return turns


def _turn(value: Any, place: str) -> Message:
    if not isinstance(value, dict) or value.keys() - {"role", "content"}:
        raise RowError(place, shown(value), f"a turn such as {TURN}")
    role, field = value.get("role"), f"{place}.content"
    if role not in ROLES:
        raise RowError(f"{place}.role", shown(role), ", ".join(map(repr, ROLES)))
    return Message(role, text({field: value.get("content")}, field, "the text of a turn"))
