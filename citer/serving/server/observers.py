"""The observers of each release: the log of traffic and the watch, with what `/metrics` shows."""

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from rich.console import Console

from citer.errors import InputError
from citer.models.bundle import identity
from citer.models.sampling import Sampler
from citer.serving.agreement import answers_per_false_alarm
from citer.serving.deployment import Deployment, Observer
from citer.serving.log import Traffic
from citer.serving.watch import Watch, promised

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
        made: list[Observer] = [self.watch] if self.watch else []
        if self.traffic:
            stamp = identity(deployment.pair) | {"version": version}
            made.append(self.traffic.observer(stamp, deployment.pair.tokenizer.decode))
        return made

    def _watch(self, version: str, bundle: Path, deployment: Deployment) -> Watch | None:
        try:
            before = promised(bundle, deployment.rule)
        except InputError as error:
            _say(f"{version}: the agreement is not watched: {error}")
            return None
        rarity = f"about one false alarm in {answers_per_false_alarm():,.0f} answers"
        _say(f"{version}: the agreement is watched, {before.agreement:.1%} before; {rarity}")
        return Watch(
            before, deployment.rule, lambda found: self._alarm(version, found), self.sampler
        )

    def _alarm(self, version: str, found: dict[str, Any]) -> None:
        low = "{agreement:.1%} in {answers} answers, limit {limit:.1%}".format(**found)
        logging.getLogger(__name__).warning("%s: the agreement is low: %s", version, low)
        if self.traffic:
            self.traffic.flush()  # a retraining may begin at once, and reads tables only
        self.alarmed(version, found)

    def _read(self, value: Callable[[Watch], float | None]) -> float:
        found = value(self.watch) if self.watch else None
        return math.nan if found is None else float(found)


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
