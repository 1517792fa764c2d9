"""Releases of a tiny pair whose promise is watched."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

from citer.config.params import Params, load_params
from citer.data.importing import parse_question
from citer.data.tasks import find_task
from citer.models.bundle import write_bundle
from citer.models.pair import Pair
from citer.rule import LLM, Rule
from citer.serving.deployment import Deployment
from citer.serving.evidence import Evidence
from citer.serving.log import Traffic
from citer.serving.server.releases import Release, Releases
from citer.serving.shadow import Told
from tests.server.running import QUESTIONS, RULE, Running, asked, deployed

VERSION = "tiny/1"
STRICTER = Rule("risk", 0.9, audit=0.6)
PATH = [str(RULE), str(STRICTER), str(LLM)]
PROMISE = {"path": PATH, "graded": 0.02, "same": 0.02, "delta": 0.05}
EOS = tuple(range(0, 384, 12))
Steps = Queue[tuple[Any, ...]]
MakeRelease = Callable[[str, Path, Deployment], Release]


def ending(pair: Pair) -> Pair:
    """Return a pair with so many EOS tokens that most of its answers end."""
    return replace(pair, eos_ids=EOS)


def write_promised(pair: Pair, folder: Path, **changes: Any) -> Path:
    """Write the folder of a registered router with a promise. Return it."""
    rule = {"visit": RULE.visit, "at": RULE.at, "audit": RULE.audit}
    card = pair.identity | {"threshold": {"rule": rule}, "promise": PROMISE | changes}
    write_bundle(folder, deployed(pair).router, card)
    return folder


def shadowing(**changes: Any) -> Params:
    """Return the parameters of a server that shadows every request, and soon steps back."""
    params = load_params()
    serve = params.serve.model_copy(update={"shadow": 1.0, "false_alarms": 20.0} | changes)
    return params.model_copy(update={"serve": serve})


def observing(
    folder: Path, traffic: Traffic | None = None, **changes: Any
) -> tuple[MakeRelease, Steps]:
    """Return what makes releases whose promise is watched, and the steps of all of them."""
    told, evidence = Steps(), Evidence(folder / "evidence.db")

    def tell(*found: Any) -> None:
        if found[2]:  # a step
            told.put(found)

    return releases(shadowing(**changes), traffic, evidence, tell).release, told


def releases(
    params: Params,
    traffic: Traffic | None = None,
    evidence: Evidence | None = None,
    told: Told | None = None,
) -> Releases:
    def unused(*_: str) -> Any:
        raise AssertionError

    return Releases(unused, unused, params, None, traffic, evidence, told)


def watched(
    pair: Pair, folder: Path, traffic: Traffic | None = None, **changes: Any
) -> tuple[Release, Steps]:
    """Return a release of a deployment, whose evidence lies in `folder`, and its steps."""
    release, told = observing(folder, traffic, **changes)
    bundle = write_promised(pair, folder / "bundle")
    return release(VERSION, bundle, deployed(pair)), told


def ask(server: Running, number: int, **fields: Any) -> Any:
    return server.client().chat.completions.create(**asked(QUESTIONS[number % 12], **fields))


def shadowed(server: Running) -> int:
    """Return how many requests were shadowed or dropped so far."""
    verdicts = ("kept", "lost", "uncounted", "dropped")
    return sum(int(server.metric("citer_shadowed_total", verdict=v) or 0) for v in verdicts)


def settled(server: Running, count: int) -> None:
    deadline = time.monotonic() + 60
    while shadowed(server) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


PROBLEMS = [parse_question({"problem": each}, ["math"]) for each in QUESTIONS]


def alone(deployment: Deployment, rule: Rule = LLM) -> dict[str, str | None]:
    """Return the answer to each question by a rule, None for one that is cut off."""
    replies = replace(deployment, rule=rule).replies(PROBLEMS)
    return {r.problem.question: None if r.answer.truncated else r.completion for r in replies}


def losses(deployment: Deployment, rule: Rule = RULE) -> list[bool]:
    """Return of each of the LLM's answers that end whether the one by a rule differs."""
    routed, llm, same = alone(deployment, rule), alone(deployment), find_task("math").same
    pairs = ((each, routed[each.question], llm[each.question]) for each in PROBLEMS)
    return [
        one is None or not same(each, other, one) for each, one, other in pairs if other is not None
    ]
