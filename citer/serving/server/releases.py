"""Which router serves: where versions come from, how one is loaded, and who sees its answers."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from citer.config.params import Params, SamplingParams
from citer.errors import InputError
from citer.evaluation.measure import sampling_text
from citer.progress import say
from citer.rule import Rule
from citer.serving.deployment import Deployment, Observer, deploy, served_pair, stored_rule
from citer.serving.evidence import Evidence
from citer.serving.log import Traffic
from citer.serving.promise import Promise, Standing, Step, stored_promise
from citer.serving.shadow import Judge, Keeper, Told
from citer.stages import paths

Fetch = Callable[[str], AbstractContextManager[Path]]
PROMISE: dict[str, tuple[str, Callable[[Keeper], float]]] = {
    "e_detector": (
        "Evidence that the promise is broken now; the rule steps back at serve.false_alarms",
        lambda keeper: keeper.standing.detector.value,
    ),
    "e_value": (
        "Evidence that the promise was ever broken by the rule in force",
        lambda keeper: keeper.standing.product.value,
    ),
    "step": ("Steps back from the registered rule", lambda keeper: keeper.standing.place),
    "lapsed": ("1 if shadow answers are missing for too long", lambda keeper: keeper.lapsed),
}
LOGGED = ("logged", "left_out", "failed", "lost")


class Release(NamedTuple):
    """A version of the router, ready to answer. `observers` see its answers to chats."""

    version: str
    deployment: Deployment
    observers: Sequence[Observer] = ()
    keeper: Keeper | None = None  # of its promise, if it has one

    @property
    def rule(self) -> Rule:
        """The rule in force."""
        return self.keeper.rule if self.keeper else self.deployment.rule

    @property
    def promise(self) -> str | None:
        """Whether the promise is kept, for clients. None if it is not watched."""
        if not self.keeper:
            return None
        step = self.keeper.standing.place
        return "lapsed" if self.keeper.lapsed else f"revoked, step {step}" if step else "kept"


@dataclass(frozen=True)
class Releases:
    """The releases of a router. `rule` replaces the rules that are stored with the routers.

    `latest` returns the router that should serve now, `models:/NAME/VERSION` or a folder; any
    exception keeps the present one. `fetch` yields its folder, which is read inside the block only.
    `release` makes a release of its version, its folder and its deployment.
    """

    latest: Callable[[], str]
    fetch: Fetch
    params: Params
    rule: Rule | None = None
    release: Callable[[str, Path, Deployment], Release] = lambda *made: Release(made[0], made[2])

    def newest(self, current: Release | None = None) -> Release:
        """Return the latest release: `current`, or one that shares its LLM. Raises InputError."""
        router = self.latest()
        version = router.removeprefix("models:/")
        if current and current.version == version:
            return current
        with self.fetch(router) as bundle:
            return self.release(version, bundle, self._load(bundle, current))

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
    """Makes the observers and the keeper of a release.

    Answers are logged to `traffic`, if that is given. Promises are watched with `evidence`, if that
    is given. `told` is called for each step, after the rows so far are in tables.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        params: Params,
        traffic: Traffic | None,
        evidence: Evidence | None,
        told: Told,
    ) -> None:
        self.params, self.traffic, self.evidence, self.told = params, traffic, evidence, told
        self.keeper: Keeper | None = None  # of the newest release
        self._judge = Judge()
        for name, (meaning, value) in (PROMISE if evidence else {}).items():
            gauge = Gauge(f"citer_promise_{name}", meaning, registry=registry)
            gauge.set_function(partial(self._read, value))
        if traffic:
            rows = Gauge("citer_traffic_rows", "Rows of the log", ["verdict"], registry=registry)
            for verdict in LOGGED:
                rows.labels(verdict).set_function(partial(traffic.counts.__getitem__, verdict))

    def __call__(self, version: str, bundle: Path, deployment: Deployment) -> Release:
        """Return the release of a version; print whether its promise is watched."""
        self.keeper = self._keeper(version, bundle, deployment) if self.evidence else None
        stamp = deployment.pair.identity | {"version": version}
        decode = deployment.pair.tokenizer.decode
        observers = [self.traffic.observer(stamp, decode)] if self.traffic else []
        return Release(version, deployment, observers, self.keeper)

    def _keeper(self, version: str, bundle: Path, deployment: Deployment) -> Keeper | None:
        assert self.evidence
        try:
            promise = promised(bundle, deployment, self.params.evaluate.sampling)
        except InputError as error:
            say(f"{version}: no promise is watched: {error}")
            return None
        serve, seed = self.params.serve, self.params.seed
        made = Keeper(version, promise, self.evidence, serve, seed, self._tell, self._judge)
        graded = f" ({promise.graded:g} with a right answer)" if promise.graded else ""
        said = f"a risk of at most {promise.same:g}{graded} at confidence {1 - promise.delta:g}"
        say(f"{version}: {said} is watched; `{made.rule}` is in force")
        return made

    def _tell(self, version: str, standing: Standing, step: Step | None) -> None:
        if step and self.traffic:
            self.traffic.flush()  # a retraining may begin at once, and reads tables only
        Thread(target=self.told, args=(version, standing, step), daemon=True).start()

    def _read(self, value: Callable[[Keeper], float]) -> float:
        return float(value(self.keeper)) if self.keeper else math.nan


def promised(bundle: Path, deployment: Deployment, sampling: SamplingParams | None) -> Promise:
    """Read the promise of a registered router that serves by its own rule and `sampling`.

    Raises InputError.
    """
    promise, served = stored_promise(bundle), sampling_text(sampling)
    if promise.sampling != served:
        raise InputError(f"it is one of answers that are {promise.sampling}, served are {served}")
    if deployment.rule != promise.rules[0]:
        raise InputError(f"`{deployment.rule}` is not the registered rule, `{promise.rules[0]}`")
    for rule in promise.rules:
        deployment.policy(rule)
    return promise
