"""Describe a version of the model: in a few tags, and in text for MLflow's page and the terminal.

All else is read from the run of its router.
"""

import re
from collections.abc import Iterator, Mapping

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from citer.evaluation.measure import MEASURES, Conditions, Measure
from citer.evaluation.metrics import share_interval
from flows import outcomes
from flows.ledger import DECISIONS, record, spent
from flows.links import report_link
from flows.metrics import headlines, section
from flows.tracking import LABELS

RULE = ("rule", "visit", "at", "by", "audit", "heads")
INTERVAL = ("accuracy_low", "accuracy_high")  # Wilson's interval at 95 %, or of the fidelity
DECIDED, SINCE = "The gate's decision at registration: ", "Since then: "
LINEAGE = ("iteration", "digest", "git_sha", "git_dirty")


def recorded(router: Run) -> dict[str, str]:
    """Collect all that the run of a router says about it."""
    run_id, tags = router.info.run_id, router.data.tags
    right = [answer.correct for answer in outcomes.routed(run_id).values()]
    interval = dict(zip(INTERVAL, share_interval(sum(right), len(right)), strict=True))
    conditions, deployed = Conditions.stored(tags), outcomes.threshold(run_id)
    numbers = headlines(section(router.data.metrics, "all")) | conditions.measure.keys(interval)
    return {
        **{key: tags[key] for key in RULE if key in tags},
        **conditions.fields,
        **{key: tags[key] for key in LABELS if key in tags},
        **{key: f"{value:.6g}" for key, value in numbers.items()},
        "questions": str(len(right)),
        "certified": str(deployed["certified"]).lower(),
        **record(router),
        "preferences": _trained_on(router),
        **{key: tags[key] for key in LINEAGE},
        "report": report_link(router),
    }


def tags_of(router: Run, known: Mapping[str, str], batch: int) -> dict[str, str]:
    """Choose the tags of a version: few, because MLflow's list of versions shows all of them.

    The cost is the one that the gate compares at `batch`.
    """
    cost = "cost_b1" if batch == 1 else f"cost_b{batch}_delayed"
    numbers, shown = section(router.data.metrics, "all"), facts(known)
    listed = (name for name in (*MEASURES, cost, "llm_fraction") if name in numbers)
    return {
        "rule": known["rule"],
        **{name: f"{numbers[name]:.6g}" for name in listed},
        "certified": known["certified"],
        "data": shown["preferences, md5"],
        "commit": shown["git"],
    }


def known_of(version: ModelVersion, router: Run) -> Mapping[str, str]:
    """Return all that is known of a version: its own tags, and what the run of its router says.

    An earlier citer wrote everything on the version itself.
    """
    tags: Mapping[str, str] = version.tags
    return tags if "digest" in tags else {**recorded(router), **tags}


def _trained_on(router: Run) -> str:
    """Return DVC's digest of the table of preferences."""
    assert router.inputs
    used = router.inputs.dataset_inputs
    return next(each.dataset.digest for each in used if each.tags[0].value == "training")


def facts(tags: Mapping[str, str]) -> dict[str, str]:
    """Select the facts to show about a version. A fact whose tag is missing is left out."""
    batches = sorted(int(size) for size in re.findall(r"cost_b(\d+)\b", " ".join(tags)))
    conditions = Conditions.stored(tags)
    measure = conditions.measure
    dirty = " (dirty)" if tags.get("git_dirty") == "true" else ""
    values = {
        "rule": tags.get("rule"),
        "heads": tags.get("heads"),
        "certified": {"true": "yes", "false": "no"}.get(tags.get("certified", "")),
        "measure": conditions.measured,
        "sampling": conditions.sampling,
        measure.name: _share(tags, measure),
        "test questions": tags.get("questions"),
        "LLM fraction": tags.get("llm_fraction"),
        **{f"cost at batch {size}": tags.get(f"cost_b{size}") for size in batches},
        "tokens per answer": tags.get("tokens_per_answer"),
        "iteration": tags.get("iteration"),
        "references": tags.get("references"),
        "outcome of labels": tags.get("outcome"),
        "margin of labels, nats": tags.get("margin"),
        "preferences, md5": tags.get("preferences", "")[:7],
        "git": tags["git_sha"][:7] + dirty if "git_sha" in tags else None,
    }
    return {name: value for name, value in values.items() if value}


def _share(tags: Mapping[str, str], measure: Measure) -> str:
    """Format the share of correct answers with its interval, if known.

    Return a tag that is no number unchanged.
    """
    share = tags.get(measure.name, "")
    try:
        ends = [
            f"{100 * float(tags[end]):.1f}" for end in map(measure.key, INTERVAL) if end in tags
        ]
        interval = f" [{', '.join(ends)}]" if ends else ""
        return f"{float(share):.1%}{interval}"
    except ValueError:
        return share


def verdict(tags: Mapping[str, str]) -> str:
    """Return the gate's decision and its reason; empty without a decision."""
    return f"{tags['decision']}: {tags.get('reason', '')}" if "decision" in tags else ""


def story(tags: Mapping[str, str]) -> Iterator[str]:
    """Yield the gate's decision and what happened since. The alias says which version serves."""
    decision = verdict(tags) or "none, because it judges only the last router of a retraining"
    yield f"{DECIDED}{decision}."
    if "history" in tags:
        yield f"{SINCE}{tags['history']}."


def description(known: Mapping[str, str]) -> str:
    """Write Markdown for MLflow's page of a version."""
    used = [
        spent(split, known[f"{split}_set"], int(known[f"{split}_use"]), float(known["delta"]))
        for split in DECISIONS
        if f"{split}_use" in known
    ]
    page = f"[Report page]({known['report']})"
    listed = "\n".join(f"- {name}: {value}" for name, value in facts(known).items())
    return "\n\n".join([*story(known), *used, page, listed])


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
