"""Which router serves: where its versions come from, and how one is loaded."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from citer.config.params import Params
from citer.rule import Rule
from citer.serving.deployment import Deployment, Observer, deploy, served_pair, stored_rule
from citer.stages import paths


class Source(Protocol):
    """Where routers come from: a registry, or a folder."""

    def latest(self) -> str:
        """Return the version that should serve now. Any exception keeps the present one."""
        ...

    def bundle(self, version: str) -> AbstractContextManager[Path]:
        """Yield the folder of a version, which is read inside the block only."""
        ...


class Release(NamedTuple):
    """A version of the router, ready to answer. `observers` see its answers to chats."""

    version: str
    deployment: Deployment
    observers: Sequence[Observer] = ()


@dataclass(frozen=True)
class Releases:
    """The releases of a source. `rule` replaces the rules that are stored with the routers.

    `observe` makes the observers of a release, of its version, its folder and its deployment.
    """

    source: Source
    params: Params
    rule: Rule | None = None
    observe: Callable[[str, Path, Deployment], Sequence[Observer]] = lambda *_: ()

    def newest(self, current: Release | None = None) -> Release:
        """Return the latest release: `current`, or one that shares its LLM. Raises InputError."""
        version = self.source.latest()
        if current and current.version == version:
            return current
        with self.source.bundle(version) as bundle:
            deployment = self._load(bundle, current)
            return Release(version, deployment, self.observe(version, bundle, deployment))

    def _load(self, bundle: Path, current: Release | None) -> Deployment:
        pair, limits = self.params.pair, self.params.evaluate
        made = deploy(
            bundle,
            served_pair(bundle, paths.SLM, Path(pair.llm), pair.llm_url, patience=()),
            pair,
            self.rule or stored_rule(bundle),
            slots=limits.slots,
            max_new_tokens=limits.max_new_tokens,
            loaded=current and current.deployment.pair.llm,
        )
        _ = made.engine  # without room for its caches, the present release must stay
        return made
