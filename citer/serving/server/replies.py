"""The bodies of replies, in OpenAI's forms, with the version that answered; streams of text."""

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from citer.decoding.answer import Answer, Written
from citer.evaluation.cost import Prices, Trace
from citer.models.pair import Pair
from citer.rule import Rule

HALF = "\ufffd"  # stands for a character of which bytes are missing
END = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Form:
    """The replies to one request. `model` is the served name, `version` the router's."""

    chat: bool
    model: str
    version: str
    rule: Rule
    prices: Prices  # of the pair with the scorer of the rule
    prompt_tokens: int
    created: int = field(default_factory=lambda: int(time.time()))
    unique: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def id(self) -> str:
        return f"{'chatcmpl' if self.chat else 'cmpl'}-{self.unique}"

    def reply(self, answer: Answer, text: str) -> dict[str, Any]:
        """Return the body of a whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"message": message} if self.chat else {"text": text}
        kind = "chat.completion" if self.chat else "text_completion"
        return self._body(kind, choice, answer) | self._usage(answer)

    @property
    def opening(self) -> bytes:
        """The event that begins a stream, or nothing."""
        # Clients join the fields of all deltas, so that only one of them may have the role.
        return self._event({"delta": {"role": "assistant", "content": ""}}) if self.chat else b""

    def piece(self, text: str, answer: Answer | None = None, **more: Any) -> bytes:
        """Return an event with a part of the text. The last part comes with its `answer`."""
        choice = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._event(choice, answer, **more)

    def written_piece(self, written: list[dict[str, str]]) -> bytes:
        """Return an event with a part of the text, and who wrote each token of it."""
        return self.piece("".join(each["text"] for each in written), citer={"written": written})

    def usage_event(self, answer: Answer) -> bytes:
        return self._event(None, **self._usage(answer))

    def _event(
        self, choice: dict[str, Any] | None, answer: Answer | None = None, **more: Any
    ) -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return event(self._body(kind, choice, answer) | more)

    def _usage(self, answer: Answer) -> dict[str, Any]:
        used = {"prompt_tokens": self.prompt_tokens, "completion_tokens": len(answer.token_ids)}
        return {"usage": used | {"total_tokens": sum(used.values())}}

    def _body(
        self, kind: str, choice: dict[str, Any] | None, answer: Answer | None
    ) -> dict[str, Any]:
        reason = answer and ("length" if answer.truncated else "stop")
        ended = {"index": 0, "logprobs": None, "finish_reason": reason}
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.version,
            "choices": [ended | choice] if choice else [],
        } | (self._routing(answer) if answer else {})

    def _routing(self, answer: Answer) -> dict[str, Any]:
        """Return our own part of a reply: who answered, the counts, and the cost alone."""
        counts = answer.counts._asdict() | {"bytes": self.moved(answer)}
        return {"citer": {"version": self.version, "rule": str(self.rule), **counts}}

    def moved(self, answer: Answer) -> float:
        """Return the bytes that an answer to the request moves alone."""
        trace = Trace.of(self.prompt_tokens, len(answer.token_ids), answer.visits)
        return self.prices.moved(trace.slm, trace.llm)


def event(body: dict[str, Any]) -> bytes:
    """Return a server-sent event, in ASCII: some clients end a line at U+2028 or U+0085, too."""
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class TextStream:
    """Turns settled tokens into text. The pieces and the `rest` are together `Pair.text`.

    A token may end within a character, and a tokenizer may write a token differently after another
    one. The new tokens are therefore decoded after those of the previous piece (the method of
    text-generation-inference and vLLM). Text that may be the beginning of a stop text is held back.
    """

    def __init__(self, pair: Pair, stop: Sequence[str]) -> None:
        self._pair = pair
        self._stops = (*pair.prompts.stop, *stop)
        self._ids: list[int] = []  # those of the previous piece, then new ones
        self._old = 0  # number of those of the previous piece
        self._text = ""  # all complete characters
        self._sent = 0

    def add(self, token_ids: Sequence[int]) -> str:
        """Return the text that is certain after these tokens, and was not returned before."""
        self._ids += token_ids
        decoded = self._pair.decoded
        before, after = decoded(self._ids[: self._old]), decoded(self._ids)
        if len(after) > len(before) and not after.endswith(HALF):
            self._text += after[len(before) :]
            self._ids, self._old = self._ids[self._old :], len(self._ids) - self._old
        end = len(self._text) - self._held()
        piece = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return piece

    def written(self, tokens: Sequence[Written]) -> list[dict[str, str]]:
        """Return the text that each token makes certain, who wrote it, and what it replaced."""
        return [
            {"text": self.add([token.token_id]), "by": token.by}
            | ({"rejected": self._pair.decoded(token.rejected)} if token.rejected else {})
            for token in tokens
        ]

    def rest(self, text: str) -> str:
        """Return what is missing of the answer's whole text."""
        return text[self._sent :]

    def _held(self) -> int:
        """Return the length of the longest end of the text that begins a stop text or has one."""
        unsent = self._text[self._sent :]
        found = [len(unsent) - unsent.find(stop) for stop in self._stops if stop in unsent]
        begun = (
            size
            for stop in self._stops
            for size in range(min(len(stop), len(unsent) + 1) - 1, 0, -1)
            if unsent.endswith(stop[:size])
        )
        return max([*found, *begun], default=0)
