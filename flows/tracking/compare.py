"""Compare the champion with the challenger."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from rich.console import Console
from rich.table import Table

from citer.config.params import load_params
from citer.errors import InputError
from citer.evaluation.gate import difference
from citer.evaluation.measure import Conditions
from citer.progress import say
from flows.tracking.answers import routed
from flows.tracking.describe import facts, verdict
from flows.tracking.registry import CHALLENGER, CHAMPION, aliased, run_of
from flows.tracking.store import open_store, reported
from flows.tracking.uses import report, routers


@reported()
def compare() -> None:
    """Print the facts of champion and challenger.

    Raises InputError if neither exists, or if MLflow no longer has the run of one.
    """
    params = load_params()
    store, name = open_store(params.register_.experiment), params.register_.model_name
    found = ((alias, aliased(store.client, name, alias)) for alias in (CHAMPION, CHALLENGER))
    shown = {alias: version for alias, version in found if version}
    if len({version.version for version in shown.values()}) == 1:
        shown = {" and ".join(shown): next(iter(shown.values()))}
    if not shown:
        raise InputError(f"{name}: no champion and no challenger; make one with `citer promote`")
    runs = [run_of(version) for version in shown.values()]
    Console(highlight=False).print(_side_by_side(shown, runs))
    for version in shown.values():
        say(f"Version {version.version}. {_story(version.tags)}")
    if len(runs) == 2:
        champion, challenger = runs
        say(_difference(champion, challenger, params.evaluate.delta))
    for sentence in report(routers(store), runs):
        say(sentence)


def _side_by_side(shown: Mapping[str, ModelVersion], runs: Sequence[Run]) -> Table:
    table = Table("", *shown)
    columns = []
    for version, run in zip(shown.values(), runs, strict=True):
        made = datetime.fromtimestamp(version.creation_timestamp / 1000, UTC)
        own = {"version": str(version.version), "registered": f"{made:%Y-%m-%d %H:%M} UTC"}
        columns.append(own | facts(run))
    for fact in dict.fromkeys(chain.from_iterable(columns)):  # their batch sizes may differ
        table.add_row(fact, *(column.get(fact, "") for column in columns))
    return table


def _story(tags: Mapping[str, str]) -> str:
    """Say what the gate decided and what happened since. The alias says which version serves."""
    decision = verdict(tags) or "none, because it judges only the last router of a retraining"
    since = f" Since then: {tags['history']}." if "history" in tags else ""
    return f"The gate's decision at registration: {decision}.{since}"


def _difference(champion: Run, challenger: Run, delta: float) -> str:
    """Subtract the champion's share of correct answers, with the gate's bounds."""
    before, now = (Conditions.stored(run.data.tags) for run in (champion, challenger))
    if now != before:
        measured = f"the challenger is measured by {now}, the champion by {before}"
        return f"The two versions cannot be compared: {measured}."
    old, new = (routed(run.info.run_id) for run in (champion, challenger))
    if not old.keys() & new.keys():
        return "The two versions have no test question in common."
    gap = difference(new, old, delta)
    return (
        f"{now.measure.name.capitalize()}, challenger minus champion, "
        f"on {gap.questions} common questions: "
        f"{gap.mean:+.4f} (at least {gap.low:+.4f}, at most {gap.high:+.4f}, "
        f"each at confidence {1 - delta:g}); {gap.gained} gained, {gap.lost} lost"
    )
