"""The bodies of replies, in OpenAI's forms, with the version that answered; streams of text."""

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from citer.decoding.answer import Answer
from citer.models.pair import Pair
from citer.rule import Rule
from citer.serving.server.worker import Done

HALF = "\ufffd"  # stands for a character of which bytes are missing
END = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Form(ABC):
    """The replies to one request. `model` is the served name, `version` the router's."""

    model: str
    version: str
    rule: Rule
    prompt_tokens: int
    created: int = field(default_factory=lambda: int(time.time()))
    unique: str = field(default_factory=lambda: uuid.uuid4().hex)
    whole: ClassVar[str]
    part: ClassVar[str]

    def reply(self, pair: Pair, done: Done, text: str) -> dict[str, Any]:
        """Return the body of a whole answer."""
        choice = self._content(text) | {
            "logprobs": done.logprobs and self._logprobs(pair, done),
            "finish_reason": reason(done.answer),
        }
        return self._body(self.whole, [choice]) | self.usage(done.answer) | self._routing(done)

    @property
    def opening(self) -> bytes:
        """The event that begins a stream, or nothing."""
        return b""

    def piece(self, text: str) -> bytes:
        """Return an event with a part of the text."""
        return event(self._body(self.part, [self._delta(text)]))

    def last(self, done: Done, text: str) -> bytes:
        """Return the event with the end of the text and the reason why it ends there."""
        choice = self._delta(text) | {"finish_reason": reason(done.answer)}
        return event(self._body(self.part, [choice]) | self._routing(done))

    def usage_event(self, answer: Answer) -> bytes:
        return event(self._body(self.part, []) | self.usage(answer))

    def usage(self, answer: Answer) -> dict[str, Any]:
        used = {"prompt_tokens": self.prompt_tokens, "completion_tokens": len(answer.token_ids)}
        return {"usage": used | {"total_tokens": sum(used.values())}}

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if 'chat' in kind else 'cmpl'}-{self.unique}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.version,
            "choices": choices,
        }

    def _routing(self, done: Done) -> dict[str, Any]:
        """Return our own part of a reply: who answered, and how often each model was asked."""
        counts = done.answer.counts._asdict()
        return {"citer": {"version": self.version, "rule": str(self.rule), **counts}}

    @abstractmethod
    def _content(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _logprobs(self, pair: Pair, done: Done) -> dict[str, Any]: ...


class ChatForm(Form):
    whole, part = "chat.completion", "chat.completion.chunk"

    @property
    def opening(self) -> bytes:
        # Clients join the fields of all deltas, so that only one of them may have the role.
        choice = self._delta("")
        choice["delta"]["role"] = "assistant"
        return event(self._body(self.part, [choice]))

    def _content(self, text: str) -> dict[str, Any]:
        return {"index": 0, "message": {"role": "assistant", "content": text, "refusal": None}}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}

    def _logprobs(self, pair: Pair, done: Done) -> dict[str, Any]:
        rows = [
            {"token": text, "bytes": list(text.encode()), "logprob": logprob, "top_logprobs": []}
            for text, logprob in zip(token_texts(pair, done), done.logprobs or (), strict=True)
        ]
        return {"content": rows, "refusal": None}


class TextForm(Form):
    whole = part = "text_completion"

    def _content(self, text: str) -> dict[str, Any]:
        return {"index": 0, "text": text}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": None}

    def _logprobs(self, pair: Pair, done: Done) -> dict[str, Any]:
        return {"tokens": token_texts(pair, done), "token_logprobs": done.logprobs}


def token_texts(pair: Pair, done: Done) -> list[str]:
    return [str(pair.tokenizer.decode([token])) for token in done.answer.token_ids]


def reason(answer: Answer) -> str:
    return "length" if answer.truncated else "stop"


def event(body: dict[str, Any]) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


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
        before, after = self._decode(self._ids[: self._old]), self._decode(self._ids)
        if len(after) > len(before) and not after.endswith(HALF):
            self._text += after[len(before) :]
            self._ids, self._old = self._ids[self._old :], len(self._ids) - self._old
        end = len(self._text) - self._held()
        piece = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return piece

    def rest(self, text: str) -> str:
        """Return what is missing of the answer's whole text."""
        return text[self._sent :]

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._pair.tokenizer.decode(list(token_ids), skip_special_tokens=True))

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
