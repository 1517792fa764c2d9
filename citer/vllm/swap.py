"""Take up a newer version of the router without a restart: its heads, SLM, rule, promise and log.

vLLM's documented way to change weights is used: it pauses, which lets running requests end, and
forgets all cached prefixes, since the old SLM wrote them. New requests wait.
"""

import asyncio
import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from citer.errors import InputError
from citer.rule import LLM, Rule
from citer.vllm.chats import ChatLog, open_log
from citer.vllm.loading import Engine, Served, Settings, read_served
from citer.vllm.registry import fetched

LOG = logging.getLogger(__name__)
# Settings that do not change the network, which the engine has in memory.
NAMED_ONLY = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}


@dataclass(frozen=True)
class Version:
    """A version of the router, or a bare rule, as this process serves it."""

    name: str
    settings: Settings  # with the router's folder
    engine: Engine
    served: Served
    log: ChatLog | None

    @property
    def rule(self) -> Rule:
        """The rule of requests that name none."""
        keeper = self.log and self.log.keeper
        return keeper.rule if keeper else self.served.asked(None)

    @classmethod
    def read(cls, name: str, settings: Settings, engine: Engine) -> Self:
        """Check a version, then open its log. Raises InputError."""
        served = read_served(settings, engine)
        return cls(name, settings, engine, served, open_log(settings, Path(engine.llm), name))

    def newer(self, name: str, router: Path) -> Self:
        """Return another version for the same engine. Raises InputError if that cannot serve it."""
        own, slm = f"{self.settings.router}/slm", self.engine.slm
        if slm == own:
            slm = str(router / "slm")
            if _network(slm) != _network(own):
                raise InputError(f"{name}: its SLM is another network, expected a restart")
        settings = self.settings.model_copy(update={"router": str(router)})
        return self.read(name, settings, self.engine._replace(slm=slm))


def _network(folder: str) -> dict[str, Any]:
    config = json.loads(Path(folder, "config.json").read_text("utf-8"))
    return {key: value for key, value in config.items() if key not in NAMED_ONLY}


@dataclass
class Live:
    """What this process serves now. `alias`: what it follows; empty if it stays as it is."""

    now: Version
    alias: str = ""
    _said: str = ""  # why the newest version is not served
    _renewing: asyncio.Task[None] | None = None

    def look(self, client: Any) -> None:
        """Begin to take up the alias's version, unless this is going on. `client`: vLLM's."""
        if self.alias and (self._renewing is None or self._renewing.done()):
            self._renewing = asyncio.create_task(self.renew(client))

    async def renew(self, client: Any) -> None:
        """Serve the alias's version if it is another one.

        One that this engine cannot serve changes nothing. If the engine fails to take it up, all
        requests get the LLM's own text, since the SLM may be a mixture of both.
        """
        before = self.now
        try:
            name, router = await asyncio.to_thread(fetched, self.alias)
            same = name == before.name
            new = before if same else await asyncio.to_thread(before.newer, name, router)
        except Exception as error:  # the store's own, too
            said = str(error) or type(error).__name__
            if said != self._said:  # vLLM asks every ten seconds
                LOG.warning("the newest router cannot be used, %s stays: %s", before.name, said)
            self._said = said
        else:
            self._said = ""
            if not same:
                await self._take(client, new)

    async def _take(self, client: Any, new: Version) -> None:
        before, self.now = self.now, new  # requests that come during the pause are for the new one
        for log in filter(None, (before.log, new.log)):
            log.serves = False  # the engine still answers the new version's requests by the LLM
        try:
            await client.pause_generation(mode="wait")
            slm = new.engine.slm if new.engine.slm != before.engine.slm else None
            await client.collective_rpc("citer_take", args=(asdict(new.served), slm))
        except Exception:
            LOG.exception("%s: the engine cannot take it up; restart the server", new.name)
            self.now = replace(new, served=replace(new.served, default=str(LLM)), log=None)
        else:
            if new.log:
                new.log.serves = True
            LOG.warning("%s serves, in place of %s: `%s`", new.name, before.name, new.rule)
        finally:
            await client.resume_generation()
