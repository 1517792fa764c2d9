"""What a version says of its router: as tags, and to read on MLflow's page or a terminal."""

import re
from collections.abc import Iterator, Mapping

from mlflow.entities import Run

from citer.evaluation.metrics import share_interval
from flows import outcomes
from flows.tracking import headlines

RULE = ("rule", "visit", "at", "audit")
ENDS = ("accuracy_low", "accuracy_high")  # Wilson's, at 95 %
LINEAGE = ("iteration", "digest", "git_sha", "git_dirty")


def tags_of(router: Run) -> dict[str, str]:
    """A version's tags, from the run that its router comes from."""
    run_id, tags = router.info.run_id, router.data.tags
    right = [answer.correct for answer in outcomes.routed(run_id).values()]
    interval = share_interval(sum(right), len(right))
    numbers = headlines(router.data.metrics) | dict(zip(ENDS, interval, strict=True))
    return {  # MLflow lists them in this order
        **{key: tags[key] for key in RULE},
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


def facts(tags: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """By name, what a person asks of a version; some of it is not known of older ones."""
    yield "rule", tags["rule"]
    yield "its bound holds", "yes" if tags["certified"] == "true" else "no"
    yield "accuracy", _accuracy(tags)
    if "questions" in tags:
        yield "test questions", tags["questions"]
    yield "LLM fraction", tags["llm_fraction"]
    for batch in sorted(int(size) for size in re.findall(r"cost_b(\d+)\b", " ".join(tags))):
        yield f"cost at batch {batch}", tags[f"cost_b{batch}"]
    yield "tokens per answer", tags["tokens_per_answer"]
    yield "iteration", tags["iteration"]
    if "preferences" in tags:
        yield "preferences, md5", tags["preferences"][:7]
    yield "git", tags["git_sha"][:7] + (" (dirty)" if tags["git_dirty"] == "true" else "")


def _accuracy(tags: Mapping[str, str]) -> str:
    """With its interval, where the version has one."""
    ends = [f"{100 * float(tags[end]):.1f}" for end in ENDS if end in tags]
    interval = f" [{', '.join(ends)}]" if ends else ""
    return f"{float(tags['accuracy']):.1%}{interval}"


def verdict(tags: Mapping[str, str]) -> str:
    """What was decided, and why; empty of a version that was not decided on."""
    return f"{tags['decision']}: {tags['reason']}" if "decision" in tags else ""


def description(tags: Mapping[str, str]) -> str:
    """Markdown for the head of MLflow's page, which shows but the first few of the tags."""
    listed = "\n".join(f"- {name}: {value}" for name, value in facts(tags))
    return f"{verdict(tags)}\n\n{listed}".lstrip()
