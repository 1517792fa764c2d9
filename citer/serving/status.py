"""Show where the promises of served versions stand, and store a person's step forward."""

import json
from collections.abc import Mapping
from typing import Any

from citer.errors import InputError, without_password
from citer.progress import say, warn
from citer.serving.evidence import Evidence, hours_since, is_there
from citer.serving.promise import Promise, Standing, is_own


def standings(place: str) -> dict[str, Standing]:
    """Return where the promise of each version with evidence stands. Raises InputError.

    A version whose record cannot be read is named on standard error.
    """
    if not (is_there(place) and Evidence(place).promises()):
        expected = "expected what `citer serve` writes if serve.shadow is above 0"
        raise InputError(f"{without_password(place)}: no evidence here, {expected}")
    evidence, found = Evidence(place), {}
    for version in evidence.promises():
        try:
            found[version] = standing_of(evidence, version)
        except InputError as error:
            warn(str(error))
    return found


def standing_of(evidence: Evidence, version: str) -> Standing:
    """Return where the promise of a version stands. Raises InputError if its record is damaged."""
    try:
        fields = json.loads(evidence.promises()[version])
        promise, begin = Promise(**fields["promise"]), fields.get("after", 0)
        standing = Standing(promise, fields["false_alarms"], seen=begin)
        _lapsed(standing, fields)  # raises for a damaged time
    except (LookupError, TypeError, ValueError):
        problem = "not evidence that this citer reads"
        place = without_password(evidence.place)
        raise InputError(f"{place}: {version}: {problem}") from None
    standing.take(evidence.after(version, standing.seen))
    return standing


def show(place: str) -> None:
    """Print the evidence about each version, and the steps that were taken. Raises InputError."""
    known = standings(place)
    declared = Evidence(place).promises()
    for version, each in known.items():
        facts = {
            "rule in force": each.rule,
            "promise": _verdict(each) + _lapsed(each, json.loads(declared[version])),
            "shadow answers": f"{each.shadowed:,} since the last step, {each.lost:,} of them lost",
            "e-detector": f"{each.detector.value:.3g} of {each.false_alarms:g}",
            "e-value": f"{each.product.value:.3g} of {1 / each.promise.delta:g}",
            "last": f"{each.at} UTC" if each.at else "none yet",
        }
        say(version)
        for name, value in facts.items():
            say(f"  {name:<14}  {value}")
        for step in each.steps:
            say(f"  {step.at}  `{step.before}` → `{step.rule}`: {step.why}")


def step_forward(place: str, version: str) -> None:
    """Put the looser rule into force again. Raises InputError unless the evidence allows it."""
    known = standings(place)
    if version not in known:
        expected = f"expected one of: {', '.join(known)}"
        raise InputError(f"{version}: not in {without_password(place)}, {expected}")
    standing = known[version]
    if not standing.may_step_forward:
        raise InputError(f"{version}: no step forward, its promise is {_verdict(standing)}")
    Evidence(place).add(version, "", False, 0.5)
    say(f"{version}: `{standing.looser}` is in force again")


def _lapsed(standing: Standing, declared: Mapping[str, Any]) -> str:
    """Say that evidence is missing for too long; empty if it is not, or if none is needed."""
    if "since" not in declared or not (standing.looser or not is_own(standing.rule)):
        return ""
    hours = hours_since(max(standing.at, declared["since"]))
    return f"; lapsed: {hours:.0f} hours without one" if hours > declared["shadow_deadline"] else ""


def _verdict(standing: Standing) -> str:
    if not standing.place:
        return "kept"
    last, needed = len(standing.promise.path) - 1, 1 / standing.promise.delta
    may = "evidence says step forward" if standing.may_step_forward else "to step forward"
    figures = f"e-value {standing.forward.value:.3g} of {needed:g}"
    return f"revoked, step {standing.place} of {last}; {may}: {figures}"
