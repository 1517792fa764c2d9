"""The champion beside the challenger."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from mlflow.entities.model_registry import ModelVersion
from rich.console import Console
from rich.table import Table

from citer.config import load_params
from citer.evaluation.gate import difference
from flows.outcomes import routed
from flows.registry import CHALLENGER, CHAMPION, aliased, run_of
from flows.store import open_store


def compare() -> None:
    """Print what is known of both. Raises InputError where nothing is registered."""
    params = load_params()
    client, name = open_store(params.register_.experiment).client, params.register_.model_name
    roles: dict[str, ModelVersion] = {}
    for alias in (CHAMPION, CHALLENGER):
        if version := aliased(client, name, alias):
            roles[alias] = version
    console = Console(highlight=False)
    console.print(_side_by_side(roles))
    known = {version.version: version for version in roles.values()}
    for number, version in known.items():
        decided = version.description or "nothing, it was made the champion outside of citer"
        console.print(f"Decided on version {number} at its time: {decided}.", soft_wrap=True)
    if len(known) == 2:
        said = _difference(roles[CHAMPION], roles[CHALLENGER], params.evaluate.delta)
        console.print(said, soft_wrap=True)


def _side_by_side(roles: Mapping[str, ModelVersion]) -> Table:
    table = Table("", *roles)
    columns = [dict(_facts(version)) for version in roles.values()]
    for fact in columns[0]:
        table.add_row(fact, *(column[fact] for column in columns))
    return table


def _facts(version: ModelVersion) -> Iterator[tuple[str, str]]:
    tags = version.tags
    registered = datetime.fromtimestamp(version.creation_timestamp / 1000)
    yield "version", str(version.version)
    yield "iteration", tags["iteration"]
    yield "rule", tags["rule"]
    yield "its bound holds", "yes" if tags["certified"] == "true" else "no"
    yield "accuracy", tags["accuracy"]
    yield "LLM fraction", tags["llm_fraction"]
    for batch in sorted(int(size) for size in re.findall(r"cost_b(\d+)\b", " ".join(tags))):
        yield f"cost at batch {batch}", tags[f"cost_b{batch}"]
    yield "tokens per answer", tags["tokens_per_answer"]
    yield "registered", f"{registered:%Y-%m-%d %H:%M}"
    yield "git", tags["git_sha"][:7] + (" (dirty)" if tags["git_dirty"] == "true" else "")


def _difference(champion: ModelVersion, challenger: ModelVersion, delta: float) -> str:
    """Accuracy of the challenger less the champion's, with the bound that the gate decides by."""
    old, new = routed(run_of(champion)), routed(run_of(challenger))
    if not old.keys() & new.keys():
        return "They have no test question in common."
    found = difference(new, old, delta)
    return (
        f"Accuracy, challenger less champion, on {found.questions} common questions: "
        f"{found.mean:+.4f} (at least {found.low:+.4f}, at most {found.high:+.4f}, "
        f"each at confidence {1 - delta:g})"
    )
