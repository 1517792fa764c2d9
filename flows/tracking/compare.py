"""Compare the champion with the challenger."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from rich.console import Console
from rich.table import Table

from citer.config.params import load_params
from citer.errors import InputError
from citer.evaluation.difference import difference
from citer.progress import say
from flows.tracking.answers import Candidate, routed
from flows.tracking.database import reported
from flows.tracking.describe import facts, verdict
from flows.tracking.registry import aliased, run_of
from flows.tracking.store import CHALLENGER, CHAMPION, open_store
from flows.tracking.uses import report, routers


@reported()
def compare() -> None:
    """Print the facts of champion and challenger.

    Raises InputError if neither exists, or if MLflow no longer has the run of one.
    """
    params = load_params()
    store, name = open_store(params.register_.experiment), params.register_.model_name
    roles: dict[str, ModelVersion] = {}
    for alias in (CHAMPION, CHALLENGER):
        if version := aliased(store.client, name, alias):
            roles[alias] = version
    if not roles:
        raise InputError(f"{name}: no champion and no challenger; make one with `citer promote`")
    runs = {version.version: run_of(version) for version in roles.values()}
    Console(highlight=False).print(_side_by_side(roles, runs))
    for number, version in {version.version: version for version in roles.values()}.items():
        say(f"Version {number}. {_story(version.tags)}")
    judged = {role: Candidate.of(runs[version.version]) for role, version in roles.items()}
    if len(runs) == 2:
        say(_difference(judged[CHAMPION], judged[CHALLENGER], params.evaluate.delta))
    for sentence in report(routers(store), runs.values()):
        say(sentence)


def _side_by_side(roles: Mapping[str, ModelVersion], runs: Mapping[str, Run]) -> Table:
    versions = {version.version: version for version in roles.values()}
    table = Table("")
    for number in versions:
        own = (role for role, version in roles.items() if version.version == number)
        table.add_column(" and ".join(own))
    columns = [dict(_facts(version, runs[number])) for number, version in versions.items()]
    for fact in dict.fromkeys(chain.from_iterable(columns)):  # their batch sizes may differ
        table.add_row(fact, *(column.get(fact, "") for column in columns))
    return table


def _facts(version: ModelVersion, run: Run) -> Iterator[tuple[str, str]]:
    registered = datetime.fromtimestamp(version.creation_timestamp / 1000)
    yield "version", str(version.version)
    yield "registered", f"{registered:%Y-%m-%d %H:%M}"
    yield from facts(run).items()


def _story(tags: Mapping[str, str]) -> str:
    """Say what the gate decided and what happened since. The alias says which version serves."""
    decision = verdict(tags) or "none, because it judges only the last router of a retraining"
    since = f" Since then: {tags['history']}." if "history" in tags else ""
    return f"The gate's decision at registration: {decision}.{since}"


def _difference(champion: Candidate, challenger: Candidate, delta: float) -> str:
    """Subtract the champion's share of correct answers, with the gate's bounds."""
    before, now = champion.conditions, challenger.conditions
    if now != before:
        measured = f"the challenger is measured by {now}, the champion by {before}"
        return f"The two versions cannot be compared: {measured}."
    old, new = (routed(version.run_id) for version in (champion, challenger))
    if not old.keys() & new.keys():
        return "The two versions have no test question in common."
    gap = difference(new, old, delta)
    return (
        f"{now.measure.name.capitalize()}, challenger minus champion, "
        f"on {gap.questions} common questions: "
        f"{gap.mean:+.4f} (at least {gap.low:+.4f}, at most {gap.high:+.4f}, "
        f"each at confidence {1 - delta:g}); {gap.gained} gained, {gap.lost} lost, "
        f"McNemar's exact test p = {gap.p_value:.3g}"
    )
