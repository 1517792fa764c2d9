"""Describe a version: in a few tags, in text for MLflow's page and the terminal, and by links.

All else is read from the run of its router.
"""

import re
from collections.abc import Iterator, Mapping

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from citer.evaluation.measure import MEASURES, Conditions
from citer.evaluation.metrics import share_interval
from citer.stages.paths import PAGE
from flows.tracking.answers import routed, threshold
from flows.tracking.database import without_password
from flows.tracking.iteration import headlines, section
from flows.tracking.uses import DECISIONS, record, spent

DECIDED, SINCE = "The gate's decision at registration: ", "Since then: "
# Without it MLflow 3 opens its pages for GenAI, whatever the experiment's tags say.
TRAINING = "?workflowType=machine_learning"
LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` listens


def facts(router: Run) -> dict[str, str]:
    """Select the facts to show about a version. What an earlier citer did not log is left out."""
    tags, conditions = router.data.tags, Conditions.stored(router.data.tags)
    numbers = headlines(section(router.data.metrics, "all"))
    texts = {name: f"{value:.6g}" for name, value in numbers.items()}
    batches = sorted(int(size) for size in re.findall(r"cost_b(\d+)\b", " ".join(texts)))
    right = [answer.correct for answer in routed(router.info.run_id).values()]
    low, high = share_interval(sum(right), len(right))  # Wilson's at 95 %
    measure = conditions.measure.name
    values = {
        "rule": tags.get("rule"),
        "heads": tags.get("heads"),
        "certified": "yes" if threshold(router.info.run_id)["certified"] else "no",
        "measure": conditions.measured,
        "sampling": conditions.sampling,
        measure: f"{numbers[measure]:.1%} [{100 * low:.1f}, {100 * high:.1f}]",
        "test questions": str(len(right)),
        "LLM fraction": texts.get("llm_fraction"),
        **{f"cost at batch {size}": texts[f"cost_b{size}"] for size in batches},
        "tokens per answer": texts.get("tokens_per_answer"),
        "iteration": tags["iteration"],
        "references": tags.get("references"),
        "outcome of labels": tags.get("outcome"),
        "margin of labels, nats": tags.get("margin"),
        "preferences, md5": _trained_on(router)[:7],
        "git": tags["git_sha"][:7] + (" (dirty)" if tags["git_dirty"] == "true" else ""),
    }
    return {name: value for name, value in values.items() if value}


def _trained_on(router: Run) -> str:
    """Return DVC's digest of the table of preferences."""
    assert router.inputs
    used = router.inputs.dataset_inputs
    return next(each.dataset.digest for each in used if each.tags[0].value == "training")


def tags_of(router: Run, shown: Mapping[str, str], batch: int) -> dict[str, str]:
    """Choose the tags of a version: few, because MLflow's list of versions shows all of them.

    `shown` are the version's facts. The gate compares costs at `batch`; that cost becomes a tag.
    """
    cost = "cost_b1" if batch == 1 else f"cost_b{batch}_delayed"
    numbers = section(router.data.metrics, "all")
    listed = (name for name in (*MEASURES, cost, "llm_fraction") if name in numbers)
    return {
        "rule": shown["rule"],
        **{name: f"{numbers[name]:.6g}" for name in listed},
        "certified": {"yes": "true", "no": "false"}[shown["certified"]],
        "data": shown["preferences, md5"],
        "commit": shown["git"],
    }


def verdict(tags: Mapping[str, str]) -> str:
    """Return the gate's decision and its reason; empty without a decision."""
    return f"{tags['decision']}: {tags.get('reason', '')}" if "decision" in tags else ""


def story(tags: Mapping[str, str]) -> Iterator[str]:
    """Yield the gate's decision and what happened since. The alias says which version serves."""
    decision = verdict(tags) or "none, because it judges only the last router of a retraining"
    yield f"{DECIDED}{decision}."
    if "history" in tags:
        yield f"{SINCE}{tags['history']}."


def description(router: Run, shown: Mapping[str, str]) -> str:
    """Write Markdown for MLflow's page of a version that was not judged yet."""
    known = record(router)
    used = [
        spent(split, known[f"{split}_set"], int(known[f"{split}_use"]), float(known["delta"]))
        for split in DECISIONS
        if f"{split}_use" in known
    ]
    page = f"[Report page]({report_link(router)})"
    listed = "\n".join(f"- {name}: {value}" for name, value in shown.items())
    return "\n\n".join([*story({}), *used, page, listed])


def retold(description: str, tags: Mapping[str, str]) -> str:
    """Replace the story at the beginning of a description."""
    rest = (part for part in description.split("\n\n") if not part.startswith((DECIDED, SINCE)))
    return "\n\n".join([*story(tags), *rest])


def sentence(last: ModelVersion, champion: ModelVersion | None, *, known: bool) -> str:
    """Say what a retraining registered, what the gate decided, and which version serves."""
    decision = verdict(last.tags)
    now = f"the champion is version {champion.version}" if champion else "there is no champion"
    if known:
        return (
            f"nothing new: {last.name} version {last.version}, registered earlier, is the same "
            f"router; the gate's decision then: {decision}; now {now}"
        )
    return f"{last.name} version {last.version} {decision}; {now}"


def page(uri: str | None) -> str:
    """Return where MLflow's page is: a server's address, or the command that starts a server."""
    if uri and uri.startswith("http"):
        return without_password(uri)
    store = '"$MLFLOW_TRACKING_URI"' if uri else "sqlite:///mlruns/mlflow.db"
    return f"MLFLOW_DISABLE_TELEMETRY=true mlflow ui --backend-store-uri {store}"


def run_link(run: Run) -> str:
    """Return the address of a run, relative to the server's."""
    return f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}{TRAINING}"


def report_link(run: Run) -> str:
    """Return the address of the report page among a run's artifacts, relative to the server's."""
    return run_link(run).replace(TRAINING, f"/artifacts/{PAGE.name}{TRAINING}")


def version_card(sentence: str, version: ModelVersion, run: Run, where: str) -> str:
    """Write Markdown for Prefect's page: what was registered, with links to MLflow's page.

    `where` is the text of `page`.
    """
    server = where.replace("…@", "").rstrip("/") if where.startswith("http") else LOCAL
    place = f"#/models/{version.name}/versions/{version.version}{TRAINING}"
    started = "" if where.startswith("http") else f"\n\nThe links need a server: `{where}`"
    return (
        f"{sentence}\n\n"
        f"- [Version {version.version} of {version.name}]({server}/{place})\n"
        f"- [Run {run.info.run_id}]({server}/{run_link(run)})\n"
        f"- [Report page]({server}/{report_link(run)}){started}"
    )
