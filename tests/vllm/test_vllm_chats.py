"""Answers of chat requests become rows of the log of traffic; without vLLM."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from citer.decoding.answer import Disagreement, Visit
from citer.serving.deployment import Reply
from citer.serving.log import audited_row
from citer.vllm.chats import Asked, ChatLog, visits

# The prompt's visit writes token 0. The next one reads drafts 1 to 4, rejects draft 3 and writes
# that token. The last one reads drafts 4 to 6 and writes token 7.
AUDITED = [
    [[1, 5, 5, 1.0, 1], [2, 8, 9, 0.5, 1], [3, 6, 7, 0.01, 0]],
    [[4, 5, 5, 1.0, 1], [5, 5, 5, 1.0, 1], [6, 1, 2, 0.5, 1]],
]
VISITS = (
    Visit(0, 0, 0),
    Visit(0, 4, 3, 3, (Disagreement(2, 8, 9, 0.5), Disagreement(3, 6, 7, 0.01))),
    Visit(0, 7, 7, 3, (Disagreement(6, 1, 2, 0.5),)),
)


@dataclass
class Seen:
    replies: list[Reply] = field(default_factory=list)

    def __call__(self, reply: Reply) -> None:
        self.replies.append(reply)


def logged(messages: list[dict[str, Any]], reasons: list[str | None]) -> list[Reply]:
    """Log the answer of a stream of two tokens an output; the last reason ends it."""

    async def outputs() -> AsyncIterator[Any]:
        for n, reason in enumerate(reasons):
            choice = SimpleNamespace(text=f"t{n} ", token_ids=[n, n], finish_reason=reason)
            yield SimpleNamespace(outputs=[choice])

    async def take() -> Any:
        return [AUDITED, []]  # of two ranks

    async def again(_: Any) -> str:
        raise AssertionError  # nothing is shadowed

    async def read() -> None:
        log, asked = ChatLog(("math",), seen), Asked(rule="risk 0.9 audit 0.1")
        asked.chat = log.chat(SimpleNamespace(messages=messages, user="ann"), None, named=True)
        if asked.chat:
            watched = log.watched(outputs(), asked, "chatcmpl-1", take, again)
            assert [len(output.outputs) async for output in watched] == [1] * len(reasons)
        await asyncio.gather(*log._storing)

    seen = Seen()
    asyncio.run(read())
    return seen.replies


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}]


def test_visits_are_made_of_the_audited_drafts() -> None:
    assert tuple(visits(AUDITED, 8)) == VISITS


def test_audits_beyond_the_end_of_an_answer_are_left_out() -> None:
    first, second = VISITS[:2]
    assert tuple(visits(AUDITED, 6)) == (first, second, Visit(0, 7, 7, 2))
    assert tuple(visits(AUDITED, 4)) == (first, second)
    assert tuple(visits(AUDITED, 1)) == ()


def test_a_complete_answer_becomes_a_row() -> None:
    [reply] = logged(CHAT, [None, None, "stop"])
    row = audited_row(reply, lambda ids: f"<{ids[0]}>")
    assert (row["task"], row["question"]) == ("math", "How many?")
    assert row["completion"] == "t0 t1 t2 "
    assert row["token_ids"] == (0, 0, 1, 1, 2, 2)
    assert row["audited"] == [1, 2, 3, 4, 5]
    assert [each["position"] for each in row["disagreements"]] == [2, 3]
    assert not row["truncated"]
    assert (row["request"], row["user"], row["reference"]) == ("chatcmpl-1", "ann", None)
    [cut] = logged(CHAT, ["length"])
    assert cut.answer.truncated


def test_what_is_no_plain_conversation_is_not_logged() -> None:
    assert logged([{"role": "tool", "content": "4"}], ["stop"]) == []
    assert logged([{"role": "user", "content": [{"type": "text", "text": "?"}]}], ["stop"]) == []
    assert logged([], ["stop"]) == []


def test_an_answer_whose_client_leaves_is_not_logged() -> None:
    assert logged(CHAT, [None, "abort"]) == []
