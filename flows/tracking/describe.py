"""Describe a version: in a few tags, and in text for MLflow's page and the terminal.

All else is read from the run of its router.
"""

import re
from collections.abc import Mapping

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from citer.config.params import ServeParams
from citer.errors import without_password
from citer.evaluation.cost import schedules
from citer.evaluation.measure import MEASURES, Conditions
from citer.evaluation.methods import SCORERS
from citer.evaluation.metrics import share_interval
from citer.rule import Rule
from citer.stages.paths import PAGE
from flows.tracking.answers import routed, threshold
from flows.tracking.contents import headlines
from flows.tracking.uses import report

# Without it MLflow 3 opens its pages for GenAI, whatever the experiment's tags say.
TRAINING = "?workflowType=machine_learning"


def tags_of(router: Run, serve: ServeParams) -> dict[str, str]:
    """Choose the tags of a version: few, because MLflow's list of versions shows all of them.

    The gate compares costs where the version will `serve`; that cost becomes a tag.
    """
    tags, numbers = router.data.tags, _on_all_tasks(router)
    costs = [batch.column for batch in schedules(serve) if batch.column in numbers]
    best = min(costs, key=numbers.__getitem__, default="")
    listed = (name for name in (*MEASURES, best, "llm_fraction") if name in numbers)
    return {
        "rule": tags["rule"],
        **scored(tags),
        **{name: f"{numbers[name]:.6g}" for name in listed},
        "certified": str(threshold(router.info.run_id)["certified"]).lower(),
        "made_from": ", ".join(f"{name} {value}" for name, value in origin(router).items()),
    }


def _on_all_tasks(router: Run) -> dict[str, float]:
    """Return the metrics of the deployed method on all test questions."""
    metrics = router.data.metrics.items()
    return {key.removeprefix("all/"): value for key, value in metrics if key.startswith("all/")}


def origin(router: Run) -> dict[str, str]:
    """Return the digest of the labels that a router learnt, and its commit."""
    assert router.inputs
    roles = {each.tags[0].value: each.dataset.digest for each in router.inputs.dataset_inputs}
    dirty = " (dirty)" if router.data.tags["git_dirty"] == "true" else ""
    return {"data": roles["training"][:7], "commit": router.data.tags["git_sha"][:7] + dirty}


def scored(tags: Mapping[str, str]) -> dict[str, str]:
    """Return what the head of the deployed rule learnt and reads; empty if it has no head."""
    if not (own := SCORERS.get(Rule.parse(tags["rule"]).by)):
        return {}
    outcome = f" ({tags['outcome']})" if own.labels == "preferences" and "outcome" in tags else ""
    return {"scorer": f"{own.labels}{outcome}, {own.input}"}


def facts(router: Run) -> dict[str, str]:
    """Select the facts to show about a version. What does not apply to it is left out."""
    tags, conditions = router.data.tags, Conditions.stored(router.data.tags)
    numbers = headlines(_on_all_tasks(router))
    texts = {name: f"{value:.6g}" for name, value in numbers.items()}
    batches = sorted(int(size) for size in re.findall(r"cost_b(\d+)\b", " ".join(texts)))
    right = [answer.correct for answer in routed(router.info.run_id).values()]
    low, high = share_interval(sum(right), len(right))  # Wilson's at 95 %
    measure, listed = conditions.measure.name, tags_of(router, ServeParams())
    values = {
        **{name: listed.get(name) for name in ("rule", "scorer", "certified")},
        "measure": conditions.measured,
        "sampling": conditions.sampling,
        measure: f"{numbers[measure]:.1%} [{100 * low:.1f}, {100 * high:.1f}]",
        "test questions": str(len(right)),
        "LLM fraction": texts.get("llm_fraction"),
        **{f"cost at batch {size}": texts[f"cost_b{size}"] for size in batches},
        "tokens per answer": texts.get("tokens_per_answer"),
        "iteration": tags["iteration"],
        "references": tags.get("references"),
        "margin of labels, nats": tags.get("margin"),
        "preferences, md5": origin(router)["data"],
        "git": origin(router)["commit"],
    }
    return {name: value for name, value in values.items() if value}


def verdict(tags: Mapping[str, str]) -> str:
    """Return the gate's decision and its reason; empty without a decision."""
    return f"{tags['decision']}: {tags.get('reason', '')}" if "decision" in tags else ""


def description(router: Run) -> str:
    """Write Markdown for MLflow's page of a version, which also lists its tags."""
    place = f"#/experiments/{router.info.experiment_id}/runs/{router.info.run_id}/artifacts"
    page = f"[Report page]({place}/{PAGE.name}{TRAINING})"
    return "\n\n".join([*report([router], [router]), page])


def sentence(last: ModelVersion, champion: ModelVersion | None, *, known: bool) -> str:
    """Say what a retraining registered, what the gate decided, and which version serves."""
    decision = verdict(last.tags)
    now = f"the champion is version {champion.version}" if champion else "there is no champion"
    if known:
        same = f"{last.name} version {last.version}, registered earlier, is the same router"
        return f"nothing new: {same}; the gate's decision then: {decision}; now {now}"
    return f"{last.name} version {last.version} {decision}; {now}"


def page(uri: str | None) -> str:
    """Return where MLflow's page is: a server's address, or the command that starts a server."""
    if uri and uri.startswith("http"):
        return without_password(uri)
    store = '"$MLFLOW_TRACKING_URI"' if uri else "sqlite:///mlruns/mlflow.db"
    return f"MLFLOW_DISABLE_TELEMETRY=true mlflow ui --backend-store-uri {store}"
