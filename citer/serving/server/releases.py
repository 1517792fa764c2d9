"""Which router serves: where versions come from, how one is loaded, and who sees its answers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import NamedTuple

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


class Release(NamedTuple):
    """A version of the router, ready to answer."""

    version: str
    deployment: Deployment
    observer: Observer | None = None  # sees its answers to chats
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
    """The releases of a router.

    `latest` returns the router that should serve now, `models:/NAME/VERSION` or a folder; any
    exception keeps the present one. `fetch` yields its folder, which is read inside the block only.
    `rule` replaces the rules that are stored with the routers.

    Answers are logged to `traffic`, and promises watched with `evidence`, if these are given.
    `told` is called for each step, after the rows so far are in tables.
    """

    latest: Callable[[], str]
    fetch: Callable[[str], AbstractContextManager[Path]]
    params: Params
    rule: Rule | None = None
    traffic: Traffic | None = None
    evidence: Evidence | None = None
    told: Told | None = None
    _judge: Judge = field(default_factory=Judge)

    def made(self, router: str, current: Release | None = None) -> Release:
        """Return a router's release: `current`, or one that shares its LLM. Raises InputError."""
        version = router.removeprefix("models:/")
        if current and current.version == version:
            return current
        params = self.params
        with self.fetch(router) as bundle:
            folders = served_pair(bundle, params.pair, patience=())
            rule, llm = self.rule or stored_rule(bundle), current and current.deployment.pair.llm
            loaded = deploy(bundle, folders, params.pair, rule, params.answer, llm)
            return self.release(version, bundle, loaded)

    def release(self, version: str, bundle: Path, deployment: Deployment) -> Release:
        """Return the release of a version; print whether its promise is watched."""
        keeper = self._keeper(version, bundle, deployment)
        stamp = deployment.pair.identity | {"version": version}
        decode = deployment.pair.tokenizer.decode
        observer = self.traffic.observer(stamp, decode) if self.traffic else None
        return Release(version, deployment, observer, keeper)

    def _keeper(self, version: str, bundle: Path, deployment: Deployment) -> Keeper | None:
        if not self.evidence:
            return None
        try:
            promise = promised(bundle, deployment, self.params.evaluate.sampling)
        except InputError as error:
            say(f"{version}: no promise is watched: {error}")
            return None
        serve, limit = self.params.serve, deployment.engine.limits.max_new_tokens
        if promise.max_new_tokens and limit > promise.max_new_tokens:
            tested = f"{version} was tested on answers of at most {promise.max_new_tokens} tokens"
            say(f"{tested}, here they may have {limit} (answer.max_new_tokens)", style="yellow")
        # A retraining may begin after a step at once, and reads tables only.
        flush = self.traffic.flush if self.traffic else None
        made = Keeper(version, promise, self.evidence, serve, self._tell, self._judge, flush)
        graded = f" ({promise.graded:g} with a right answer)" if promise.graded else ""
        said = f"a risk of at most {promise.same:g}{graded} at confidence {1 - promise.delta:g}"
        say(f"{version}: {said} is watched; `{made.rule}` is in force")
        return made

    def _tell(self, version: str, standing: Standing, step: Step | None) -> None:
        if self.told:
            Thread(target=self.told, args=(version, standing, step), daemon=True).start()


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
