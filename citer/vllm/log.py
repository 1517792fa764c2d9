"""Complete answers of chat requests, for the log of traffic and for shadow answers."""

import asyncio
import atexit
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from citer.data.importing import parse_question
from citer.data.tasks.rows import RowError
from citer.decoding.answer import Answer, Disagreement, Visit
from citer.decoding.policy import Policy, always_slm
from citer.models.bundle import read_card
from citer.models.folder import ModelFolder
from citer.rule import Rule
from citer.serving.deployment import Observer, Reply
from citer.serving.evidence import Evidence
from citer.serving.log import Traffic, load_hook
from citer.serving.promise import stored_promise
from citer.serving.shadow import Judge, Keeper
from citer.vllm.counts import Audited
from citer.vllm.loading import Settings
from citer.vllm.shadow import COMPLETE, Again, Shadows

Take = Callable[[], Awaitable[list[Audited]]]  # asks every rank for what audits found
LOG = logging.getLogger(__name__)


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


def texts(messages: Sequence[Any]) -> list[dict[str, str]] | None:
    """Return the turns of a chat request, None if one is not a plain text."""
    turns = [{"role": each.get("role"), "content": each.get("content")} for each in messages]
    return turns if all(isinstance(turn["content"], str) for turn in turns) else None


def open_log(settings: Settings, llm: Path, version: str) -> "ChatLog | None":
    """Open the log and the evidence that `loading.prepare`'s settings name. Raises InputError."""
    if not settings.router or not (settings.log or settings.evidence):
        return None
    router, observer, shadows, flush = Path(settings.router), None, None, None
    if settings.log:
        decode, traffic = ModelFolder(llm).tokenizer.decode, _traffic(settings.log, settings.redact)
        observer, flush = traffic.observer({"router": settings.router}, decode), traffic.flush
    if settings.evidence:
        promise, evidence = stored_promise(router), Evidence(settings.evidence)
        shadows = Shadows(Keeper(version, promise, evidence, settings, None, Judge(), flush))
    return ChatLog(observer, read_card(router).prompts.tasks, shadows)


@cache
def _traffic(folder: str, redact: str | None) -> Traffic:
    """Open a folder once, for all versions of the router."""
    traffic = Traffic(Path(folder), load_hook(redact))
    atexit.register(traffic.close)
    return traffic


@dataclass
class ChatLog:
    """Gives the complete answers of chat requests to an observer, and shadows some of them."""

    observer: Observer | None
    tasks: Sequence[str]
    shadows: Shadows | None = None
    _storing: set[asyncio.Task[None]] = field(default_factory=set)

    async def watched(
        self, outputs: Any, asked: dict[str, Any], take: Take, again: Again
    ) -> AsyncIterator[Any]:
        """Pass on vLLM's outputs of a request with one choice, and keep it when it is complete.

        `asked`: its rule, its messages, the rules of its shadow answers, the id of its reply, and
        who asked.
        """
        text, token_ids = "", list[int]()
        async with aclosing(outputs):
            async for output in outputs:
                for choice in output.outputs:
                    text += choice.text
                    token_ids += choice.token_ids
                    if choice.finish_reason in COMPLETE:
                        policy = Policy(always_slm, Rule.parse(asked["rule"]))
                        cut = choice.finish_reason == "length"
                        answer = Answer("", policy, tuple(token_ids), (), (), cut)
                        self._start(self._store(asked, text, answer, take, again))
                yield output

    def _start(self, storing: Any) -> None:
        """Store while the reply is on its way to the client."""
        task = asyncio.create_task(storing)
        self._storing.add(task)  # asyncio itself holds it only weakly
        task.add_done_callback(self._storing.discard)

    async def _store(
        self, asked: dict[str, Any], text: str, answer: Answer, take: Take, again: Again
    ) -> None:
        try:
            problem = parse_question({"messages": asked["messages"]}, self.tasks)
        except RowError as error:  # for example of tool calls
            LOG.info("an answer is not logged: %s", error)
            return
        [steps, *_] = await take() if self.observer else [[]]  # the first rank drafts
        llm = None
        if self.shadows and asked.get("shadow"):
            cut = None if answer.truncated else text
            llm = await self.shadows.compare(problem, asked, cut, again)
        if not self.observer:
            return
        answer = replace(answer, visits=tuple(visits(steps, len(answer.token_ids))))
        own = {"request": asked["request"], "user": asked["user"], "reference": llm}
        await asyncio.to_thread(self.observer, Reply(problem, answer, text, **own))
