"""Which router serves: where its versions come from, how one is loaded, and who sees its answers.

The observers of a release are the log of traffic and the watch. `/metrics` shows both.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Gauge
from pydantic import TypeAdapter, ValidationError

from citer.config.params import Params
from citer.errors import InputError
from citer.models.bundle import identity, read_card
from citer.models.sampling import Sampler
from citer.progress import say
from citer.rule import Rule
from citer.sections import complaint
from citer.serving.deployment import Deployment, Observer, Reply, deploy, served_pair, stored_rule
from citer.serving.drift import CARD_KEY, Promised, Watch
from citer.serving.log import Traffic
from citer.stages import paths

Fetch = Callable[[str], AbstractContextManager[Path]]
Alarmed = Callable[[str, dict[str, Any]], object]  # with the version and what its watch found
WATCHED: dict[str, tuple[str, Callable[[Watch], float | None]]] = {
    "citer_agreement": (
        "Share of audited tokens of recent answers that are the LLM's choice",
        lambda watch: watch.seen.agreement if watch.seen.answers else None,
    ),
    "citer_agreement_limit": ("Control limit of citer_agreement", lambda watch: watch.limit),
    "citer_agreement_alarm": ("1 if citer_agreement is low", lambda watch: watch.alarm),
}
LOGGED = ("logged", "left_out", "failed", "lost")


class Release(NamedTuple):
    """A version of the router, ready to answer. `observers` see its answers to chats."""

    version: str
    deployment: Deployment
    observers: Sequence[Observer] = ()


@dataclass(frozen=True)
class Releases:
    """The releases of a router. `rule` replaces the rules that are stored with the routers.

    `latest` returns the router that should serve now, `models:/NAME/VERSION` or a folder; any
    exception keeps the present one. `fetch` yields its folder, which is read inside the block only.
    `observe` makes the observers of a release, of its version, its folder and its deployment.
    """

    latest: Callable[[], str]
    fetch: Fetch
    params: Params
    rule: Rule | None = None
    observe: Callable[[str, Path, Deployment], Sequence[Observer]] = lambda *_: ()

    def newest(self, current: Release | None = None) -> Release:
        """Return the latest release: `current`, or one that shares its LLM. Raises InputError."""
        router = self.latest()
        version = router.removeprefix("models:/")
        if current and current.version == version:
            return current
        with self.fetch(router) as bundle:
            deployment = self._load(bundle, current)
            return Release(version, deployment, self.observe(version, bundle, deployment))

    def _load(self, bundle: Path, current: Release | None) -> Deployment:
        pair, limits = self.params.pair, self.params.answer
        made = deploy(
            bundle,
            served_pair(bundle, paths.SLM, Path(pair.llm), pair.llm_url, (), pair.slm_weights),
            pair,
            self.rule or stored_rule(bundle),
            slots=limits.slots,
            max_new_tokens=limits.max_new_tokens,
            loaded=current and current.deployment.pair.llm,
        )
        _ = made.engine  # without room for its caches, the present release must stay
        return made


class Observers:
    """Makes the observers of a release. Its answers are logged to `traffic`, if that is given.

    `alarmed` is called when their agreement falls below its limit. Only answers that are sampled as
    by `sampler` are watched, since the agreement at registration is that of such answers.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        sampler: Sampler,
        traffic: Traffic | None,
        alarmed: Alarmed,
    ) -> None:
        self.sampler, self.traffic, self.alarmed = sampler, traffic, alarmed
        self.watch: Watch | None = None  # of the newest release
        for name, (meaning, value) in WATCHED.items():
            Gauge(name, meaning, registry=registry).set_function(partial(self._read, value))
        if traffic:
            rows = Gauge("citer_traffic_rows", "Rows of the log", ["verdict"], registry=registry)
            for verdict in LOGGED:
                rows.labels(verdict).set_function(partial(traffic.counts.__getitem__, verdict))

    def __call__(self, version: str, bundle: Path, deployment: Deployment) -> Sequence[Observer]:
        """Return the observers of a version; print whether its agreement is watched."""
        self.watch = self._watch(version, bundle, deployment)
        made: list[Observer] = [partial(self._count, self.watch)] if self.watch else []
        if self.traffic:
            stamp = identity(deployment.pair) | {"version": version}
            made.append(self.traffic.observer(stamp, deployment.pair.tokenizer.decode))
        return made

    def _watch(self, version: str, bundle: Path, deployment: Deployment) -> Watch | None:
        try:
            before = promised(bundle, deployment.rule)
        except InputError as error:
            say(f"{version}: the agreement is not watched: {error}")
            return None
        say(f"{version}: the agreement is watched, {before.agreement:.1%} before")
        return Watch(before, deployment.rule, partial(self._alarm, version))

    def _count(self, watch: Watch, reply: Reply) -> None:
        """Let a watch count a reply, unless another rule or sampling was asked for."""
        counts, asked, own = reply.answer.counts, reply.sampling, self.sampler.sampling("")
        alike = (asked and asked[:3]) == (own and own[:3])  # all but the seed
        if counts.audited and alike and reply.answer.policy.rule == watch.rule:
            watch.count(counts.audited, counts.disagreed)

    def _alarm(self, version: str, found: dict[str, Any]) -> None:
        low = "{agreement:.1%} in {answers} answers, limit {limit:.1%}".format(**found)
        logging.getLogger(__name__).warning("%s: the agreement is low: %s", version, low)
        if self.traffic:
            self.traffic.flush()  # a retraining may begin at once, and reads tables only
        self.alarmed(version, found)

    def _read(self, value: Callable[[Watch], float | None]) -> float:
        found = value(self.watch) if self.watch else None
        return math.nan if found is None else float(found)


def promised(bundle: Path, rule: Rule) -> Promised:
    """Read from a registered router what its evaluation found under `rule`.

    Raises InputError if the agreement under that rule is unknown.
    """
    if not rule.audit:
        raise InputError(f"`{rule}` has no audit, so the models are not compared")
    card = read_card(bundle)
    if rule != stored_rule(bundle):
        raise InputError(f"`{rule}` is not the rule that was evaluated, `{stored_rule(bundle)}`")
    if not card.get(CARD_KEY):
        raise InputError(
            f"no `{CARD_KEY}` in router.json; expected a router that is registered now"
        )
    try:
        return TypeAdapter(Promised).validate_python(card[CARD_KEY])
    except ValidationError as error:
        raise InputError(f"router.json: {CARD_KEY}.{complaint(error)}") from None
