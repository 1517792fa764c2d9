"""Shadow answers: after some replies, vLLM also answers by the LLM alone (`citer.serving.shadow`).

Only greedy answers are compared: two sampled ones differ by chance.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from citer.data.problems import Problem
from citer.errors import InputError
from citer.rule import Rule
from citer.serving.promise import is_own
from citer.serving.shadow import Keeper

Again = Callable[[str], Awaitable[str | None]]  # answers a request by another rule, as `whole`
WAITING = 64  # requests that may wait for their shadow answers
COMPLETE = ("stop", "length")
# Fields of a chat request that do not change a greedy answer.
FREE = {
    *("model", "stream", "stream_options", "temperature", "top_p", "top_k", "seed", "user"),
    *("request_id", "priority", "cache_salt", "logprobs", "top_logprobs", "return_token_ids"),
}
LOG = logging.getLogger(__name__)


async def whole(outputs: AsyncIterator[Any]) -> str | None:
    """Return a request's only text, None if it was cut. Raises ValueError if vLLM gave it up."""
    text, reason = "", None
    async for output in outputs:
        [choice] = output.outputs
        text, reason = text + choice.text, choice.finish_reason
    if reason not in COMPLETE:
        raise ValueError(f"vLLM ended it: {reason}")
    return text if reason == "stop" else None


@dataclass
class Shadows:
    """Answers requests again, one at a time, and gives their texts to the keeper of a promise."""

    keeper: Keeper
    dropped: int = 0  # requests without evidence, or whose evidence is still to come
    replaced: bool = False  # by another version's: what vLLM answers now is not of this one
    _waiting: int = 0
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)  # the keeper judges one at a time

    def asked(self, request: Any, params: Any, *, chat: bool) -> dict[str, Any]:
        """Return the rule of a request that names none, and the rules of its shadow answers.

        Only a chat that is decoded as the certificate's answers may have shadow answers. It counts
        as dropped until there is evidence.
        """
        own = request.model_dump(exclude={"messages"}, exclude_defaults=True) if chat else {}
        fits = chat and not params.temperature
        unlike = own.keys() & type(request).model_fields.keys() - FREE
        needed = self.keeper.draw() if fits and not unlike else ()
        self.dropped += bool(needed)
        return {"rule": str(self.keeper.rule), "shadow": [str(each) for each in needed]}

    async def compare(
        self, problem: Problem, asked: Mapping[str, Any], text: str | None, again: Again
    ) -> str | None:
        """Answer a request again, and keep what this shows. Returns the LLM's own text, if known.

        `asked` is as from the method of that name, and `text` the reply, as from `whole`.
        """
        texts = {Rule.parse(asked["rule"]): text}
        if self._waiting < WAITING and not self.replaced:
            self._waiting += 1
            try:
                async with self._alone:
                    for rule in asked["shadow"]:
                        texts[Rule.parse(rule)] = await again(rule)
                    if not self.replaced:
                        await asyncio.to_thread(self.keeper.take, problem, texts)
                        self.dropped -= 1
            except Exception as error:  # vLLM's own, or the disk's
                LOG.warning("a shadow answer is lost: %s", str(error) or type(error).__name__)
            finally:
                self._waiting -= 1
        return next((text for rule, text in texts.items() if is_own(rule)), None)

    async def refreshed(self) -> dict[str, float]:
        """Take in what other servers have found. Returns what `/metrics` shows."""
        try:
            await asyncio.to_thread(self.keeper.refresh)  # no verdict delays it
        except InputError as error:
            LOG.warning("%s", error)
        keeper, now = self.keeper, self.keeper.standing
        found = {"step": now.place, "e_detector": now.detector.value, "shadowed": now.shadowed}
        return {**found, "lost": now.lost, "dropped": self.dropped, "lapsed": keeper.lapsed}
