"""Compare the champion with the challenger."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain

from mlflow.entities.model_registry import ModelVersion
from rich.console import Console
from rich.table import Table

from citer.config import load_params
from citer.errors import InputError
from citer.evaluation.gate import difference
from citer.evaluation.measure import Conditions
from flows.facts import facts, story
from flows.ledger import report
from flows.outcomes import routed
from flows.reach import reported
from flows.registry import aliased, run_of, versions
from flows.store import CHALLENGER, CHAMPION, open_store


@reported()
def compare() -> None:
    """Print the facts of champion and challenger. Raises InputError if neither exists."""
    params = load_params()
    client, name = open_store(params.register_.experiment).client, params.register_.model_name
    roles: dict[str, ModelVersion] = {}
    for alias in (CHAMPION, CHALLENGER):
        if version := aliased(client, name, alias):
            roles[alias] = version
    if not roles:
        raise InputError(f"{name}: no champion and no challenger; make one with `citer promote`")
    console = Console(highlight=False)
    console.print(_side_by_side(roles))
    known = {version.version: version for version in roles.values()}
    for number, version in known.items():
        console.print(f"Version {number}. {' '.join(story(version.tags))}", soft_wrap=True)
    if len(known) == 2:
        gap = _difference(roles[CHAMPION], roles[CHALLENGER], params.evaluate.delta)
        console.print(gap, soft_wrap=True)
    shown = [version.tags for version in known.values()]
    for sentence in report(versions(client, name), shown):
        console.print(sentence, soft_wrap=True)


def _side_by_side(roles: Mapping[str, ModelVersion]) -> Table:
    versions = {version.version: version for version in roles.values()}
    table = Table("")
    for number in versions:
        own = (role for role, version in roles.items() if version.version == number)
        table.add_column(" and ".join(own))
    columns = [dict(_facts(version)) for version in versions.values()]
    for fact in dict.fromkeys(chain.from_iterable(columns)):  # their batch sizes may differ
        table.add_row(fact, *(column.get(fact, "") for column in columns))
    return table


def _facts(version: ModelVersion) -> Iterator[tuple[str, str]]:
    registered = datetime.fromtimestamp(version.creation_timestamp / 1000)
    yield "version", str(version.version)
    yield "registered", f"{registered:%Y-%m-%d %H:%M}"
    yield from facts(version.tags).items()


def _difference(champion: ModelVersion, challenger: ModelVersion, delta: float) -> str:
    """Subtract the champion's share of correct answers, with the gate's bounds."""
    before, now = (Conditions.stored(version.tags) for version in (champion, challenger))
    if now != before:
        measured = f"the challenger is measured by {now}, the champion by {before}"
        return f"The two versions cannot be compared: {measured}."
    old, new = (routed(run_of(version).info.run_id) for version in (champion, challenger))
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
