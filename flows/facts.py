"""What a version says of its router: as tags, and to read on MLflow's page or a terminal."""

import re
from collections.abc import Iterator, Mapping

from mlflow.entities import Run

from citer.evaluation.metrics import share_interval
from flows import outcomes
from flows.tracking import headlines

RULE = ("rule", "visit", "at", "audit", "heads")
INTERVAL = ("accuracy_low", "accuracy_high")  # Wilson's, at 95 %
LINEAGE = ("iteration", "digest", "git_sha", "git_dirty")


def tags_of(router: Run) -> dict[str, str]:
    """A version's tags, from the run that its router comes from."""
    run_id, tags = router.info.run_id, router.data.tags
    right = [answer.correct for answer in outcomes.routed(run_id).values()]
    interval = share_interval(sum(right), len(right))
    numbers = headlines(router.data.metrics) | dict(zip(INTERVAL, interval, strict=True))
    return {  # MLflow lists them in this order
        **{key: tags[key] for key in RULE if key in tags},
        **{key: f"{value:.6g}" for key, value in numbers.items()},
        "questions": str(len(right)),
        "certified": str(outcomes.threshold(run_id)["certified"]).lower(),
        "preferences": _trained_on(router),
        **{key: tags[key] for key in LINEAGE},
    }


def _trained_on(router: Run) -> str:
    """The digest by which DVC knows the table of preferences."""
    assert router.inputs
    used = router.inputs.dataset_inputs
    return next(each.dataset.digest for each in used if each.tags[0].value == "training")


def facts(tags: Mapping[str, str]) -> dict[str, str]:
    """By name, what a person asks of a version; what its tags do not say is left out."""
    batches = sorted(int(size) for size in re.findall(r"cost_b(\d+)\b", " ".join(tags)))
    dirty = " (dirty)" if tags.get("git_dirty") == "true" else ""
    said = {
        "rule": tags.get("rule"),
        "heads": tags.get("heads"),
        "its bound holds": {"true": "yes", "false": "no"}.get(tags.get("certified", "")),
        "accuracy": _accuracy(tags),
        "test questions": tags.get("questions"),
        "LLM fraction": tags.get("llm_fraction"),
        **{f"cost at batch {size}": tags.get(f"cost_b{size}") for size in batches},
        "tokens per answer": tags.get("tokens_per_answer"),
        "iteration": tags.get("iteration"),
        "preferences, md5": tags.get("preferences", "")[:7],
        "git": tags["git_sha"][:7] + dirty if "git_sha" in tags else None,
    }
    return {name: value for name, value in said.items() if value}


def _accuracy(tags: Mapping[str, str]) -> str:
    """With its interval, where the version has one; a tag that is no number as it stands."""
    accuracy = tags.get("accuracy", "")
    try:
        ends = [f"{100 * float(tags[end]):.1f}" for end in INTERVAL if end in tags]
        interval = f" [{', '.join(ends)}]" if ends else ""
        return f"{float(accuracy):.1%}{interval}"
    except ValueError:
        return accuracy


def verdict(tags: Mapping[str, str]) -> str:
    """What was decided, and why; empty of a version that was not decided on."""
    return f"{tags['decision']}: {tags.get('reason', '')}" if "decision" in tags else ""


def story(tags: Mapping[str, str]) -> Iterator[str]:
    """What the gate said and what happened since; the alias alone says who serves now."""
    said = verdict(tags) or "not judged, since it was not the last of its retraining"
    yield f"The gate at its registration: {said}."
    if "history" in tags:
        yield f"Since then: {tags['history']}."


def description(tags: Mapping[str, str]) -> str:
    """Markdown for the head of MLflow's page, which shows but the first few of the tags."""
    listed = "\n".join(f"- {name}: {value}" for name, value in facts(tags).items())
    return "\n\n".join([*story(tags), listed])
