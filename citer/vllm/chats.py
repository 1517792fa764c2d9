"""Chats of vLLM's API: the log of complete answers, and shadow answers after some of them.

A shadow answer is vLLM's own to the same request by another rule, mostly by the LLM alone (see
`citer.serving.shadow`). Only greedy answers are compared: two sampled ones differ by chance.
"""

import asyncio
import atexit
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from citer.data.importing import parse_question
from citer.data.problems import Problem
from citer.data.tasks.rows import RowError
from citer.decoding.answer import Answer, Disagreement, Visit
from citer.decoding.policy import Policy, always_slm
from citer.models.bundle import read_card
from citer.models.folder import ModelFolder
from citer.rule import Rule
from citer.serving.deployment import Observer, Reply
from citer.serving.evidence import Evidence
from citer.serving.log import Traffic, load_hook
from citer.serving.promise import is_own, stored_promise
from citer.serving.shadow import Judge, Keeper
from citer.vllm.counts import Audited
from citer.vllm.loading import Settings

Take = Callable[[], Awaitable[list[Audited]]]  # asks every rank for what audits found
Again = Callable[[Rule], Awaitable[str | None]]  # answers a request by another rule, as `whole`
WAITING = 64  # requests that may wait for their shadow answers
COMPLETE = ("stop", "length")
# Fields of a chat request that do not change a greedy answer.
FREE = {
    *("model", "stream", "stream_options", "temperature", "top_p", "top_k", "seed", "user"),
    *("request_id", "priority", "cache_salt", "logprobs", "top_logprobs", "return_token_ids"),
}
LOG = logging.getLogger(__name__)


class Chat(NamedTuple):
    """What is kept of a request until its answer is complete."""

    turns: list[dict[str, str]]
    shadow: tuple[Rule, ...]  # the rules of its shadow answers
    user: str | None


class Asked(dict[str, Any]):
    """A request's rule and router, checked here. The JSON of a client never has this type."""

    chat: Chat | None = None


def visits(steps: Audited, tokens: int) -> Iterator[Visit]:
    """Yield the visits of an answer of this many tokens, whose audits the worker has counted.

    Steps in a row without audits make one visit. The LLM may have read drafts beyond the end.
    """
    begin = 0
    for drafts in steps:
        first = int(drafts[0][0])
        if first >= tokens:
            return
        if first > begin:
            yield Visit(0, first - 1, first - 1)
        found = tuple(
            Disagreement(int(position), int(draft), int(choice), odds)
            for position, draft, choice, odds, _ in drafts
            if draft != choice and position < tokens
        )
        kept = first + int(sum(each[-1] for each in drafts))
        yield Visit(0, first + len(drafts), kept, min(len(drafts), tokens - first), found)
        begin = kept + 1  # after the LLM's token


async def whole(outputs: AsyncIterator[Any]) -> str | None:
    """Return a request's only text, None if it was cut. Raises ValueError if vLLM gave it up."""
    choices = [choice async for output in outputs for choice in output.outputs]
    if (reason := choices[-1].finish_reason if choices else None) not in COMPLETE:
        raise ValueError(f"vLLM ended it: {reason}")
    return None if reason == "length" else "".join(choice.text for choice in choices)


def open_log(settings: Settings, llm: Path, version: str) -> "ChatLog | None":
    """Open the log and the evidence that `loading.prepare`'s settings name. Raises InputError."""
    if not settings.router or not (settings.log or settings.evidence):
        return None
    router, observer, keeper, flush = Path(settings.router), None, None, None
    if settings.log:
        decode, traffic = ModelFolder(llm).tokenizer.decode, _traffic(settings.log, settings.redact)
        observer, flush = traffic.observer({"router": settings.router}, decode), traffic.flush
    if settings.evidence:
        promise, evidence = stored_promise(router), Evidence(settings.evidence)
        keeper = Keeper(version, promise, evidence, settings, None, Judge(), flush)
    return ChatLog(read_card(router).prompts.tasks, observer, keeper)


@cache
def _traffic(folder: str, redact: str | None) -> Traffic:
    """Open a folder once, for all versions of the router."""
    traffic = Traffic(Path(folder), load_hook(redact))
    atexit.register(traffic.close)
    return traffic


@dataclass
class ChatLog:
    """Shows the complete answers of chats to an observer, and shadow answers to a keeper."""

    tasks: Sequence[str]
    observer: Observer | None = None
    keeper: Keeper | None = None
    dropped: int = 0  # chats without evidence, or whose evidence is still to come
    serves: bool = True  # whether what vLLM answers now is of this version
    _storing: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WAITING))
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)  # the keeper judges one at a time

    def chat(self, request: Any, params: Any, *, named: bool) -> Chat | None:
        """Return what is kept of a request, None if it is no conversation of plain texts.

        `named`: whether it names its rule. Then it has no shadow answers.
        """
        turns = [
            {"role": each.get("role"), "content": each.get("content")}
            for each in getattr(request, "messages", ())
        ]
        if not turns or not all(isinstance(turn["content"], str) for turn in turns):
            return None
        shadow = () if named else self._drawn(request, params)
        if not (self.observer or shadow):
            return None
        user = getattr(request, "user", None) or getattr(request, "safety_identifier", None)
        return Chat(turns, shadow, user and str(user))

    def _drawn(self, request: Any, params: Any) -> tuple[Rule, ...]:
        """Return the rules of a chat's shadow answers, mostly none.

        Only one that is decoded as the certificate's answers has some. It counts as dropped until
        there is evidence.
        """
        if not self.keeper or params.temperature:
            return ()
        own = request.model_dump(exclude={"messages"}, exclude_defaults=True)
        unlike = own.keys() & type(request).model_fields.keys() - FREE
        needed = () if unlike else self.keeper.draw()
        self.dropped += bool(needed)
        return needed

    async def watched(
        self, outputs: Any, asked: Asked, request_id: str, take: Take, again: Again
    ) -> AsyncIterator[Any]:
        """Pass on vLLM's outputs of a chat with one choice, and keep it when it is complete."""
        text, token_ids, policy = "", list[int](), Policy(always_slm, Rule.parse(asked["rule"]))
        async with aclosing(outputs):
            async for output in outputs:
                for choice in output.outputs:
                    text += choice.text
                    token_ids += choice.token_ids
                    if choice.finish_reason in COMPLETE:
                        cut = choice.finish_reason == "length"
                        answer = Answer(request_id, policy, tuple(token_ids), (), (), cut)
                        task = asyncio.create_task(self._store(asked, answer, text, take, again))
                        self._storing.add(task)  # asyncio itself holds it only weakly
                        task.add_done_callback(self._storing.discard)
                yield output

    async def _store(
        self, asked: Asked, answer: Answer, text: str, take: Take, again: Again
    ) -> None:
        """Keep an answer while the reply is on its way to the client."""
        chat = asked.chat
        assert chat
        try:
            problem = parse_question({"messages": chat.turns}, self.tasks)
        except RowError as error:  # for example of tool calls
            LOG.info("an answer is not logged: %s", error)
            return
        [steps, *_] = await take() if self.observer else [[]]  # the first rank drafts
        texts = {answer.policy.rule: None if answer.truncated else text}
        llm = await self._compare(problem, chat.shadow, texts, again) if chat.shadow else None
        if self.observer:
            answer = replace(answer, visits=tuple(visits(steps, len(answer.token_ids))))
            reply = Reply(problem, answer, text, answer.key, chat.user, llm)
            await asyncio.to_thread(self.observer, reply)

    async def _compare(
        self, problem: Problem, rules: Sequence[Rule], texts: dict[Rule, str | None], again: Again
    ) -> str | None:
        """Answer a chat again, and keep what this shows. Returns the LLM's own text, if known."""
        if self.keeper and self.serves and not self._room.locked():
            try:
                async with self._room, self._alone:
                    for rule in rules:
                        texts[rule] = await again(rule)
                    if self.serves:
                        await asyncio.to_thread(self.keeper.take, problem, texts)
                        self.dropped -= 1
            except Exception as error:  # vLLM's own, or the disk's
                LOG.warning("a shadow answer is lost: %s", str(error) or type(error).__name__)
        return next((text for rule, text in texts.items() if is_own(rule)), None)

    async def refreshed(self) -> dict[str, float]:
        """Take in what other servers have found. Returns what `/metrics` shows."""
        if not self.keeper:
            return {}
        await asyncio.to_thread(self.keeper.catch_up)  # no verdict delays it
        keeper, now = self.keeper, self.keeper.standing
        found = {"step": now.place, "e_detector": now.detector.value, "shadowed": now.shadowed}
        return {**found, "lost": now.lost, "dropped": self.dropped, "lapsed": keeper.lapsed}
