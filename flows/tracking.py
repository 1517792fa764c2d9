"""Log MLflow runs from files: one for a retraining, and a child run for each iteration."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LifecycleStage,
    Run,
    ViewType,
)
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from citer.config.params import Params
from citer.errors import InputError
from citer.rule import Rule
from citer.stages import paths
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_json
from flows import system
from flows.dvc_commands import LOCK, PARAMS, file_md5
from flows.iteration import Iteration, iterations
from flows.lineage import lineage, run_tags
from flows.metrics import flatten, headlines, log, numbers, section, series
from flows.own import versioned
from flows.packaging import log_router
from flows.pages import report_page
from flows.slm import keep_slm
from flows.store import Store

LABELS = ("references", "outcome", "margin")  # what a card says about the labels
ITERATION_SECTIONS = {"pair", "label", "train", "evaluate"}
PIPELINE = Path("pipeline")  # the artifacts that a restore puts back, under their paths
QUESTIONS = "questions.json"  # the artifact that MLflow's page shows as a table


class Retraining(NamedTuple):
    """What the runs of a retraining have in common."""

    store: Store
    params: Params
    tags: dict[str, str]


def track(store: Store, params: Params, stages: Mapping[str, float | None]) -> Run:
    """Return the finished run of the retraining in the current folder; log it if needed.

    Raises InputError if the experiment is deleted: MLflow keeps its name but accepts no runs.
    """
    experiment = store.client.get_experiment(store.experiment_id)
    if experiment.lifecycle_stage == LifecycleStage.DELETED:
        remedy = f"`mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        raise InputError(f"register.experiment: {experiment.name!r} is deleted in MLflow; {remedy}")
    routers = iterations(stages)
    identity = digest(*(router.digest for router in routers))
    earlier = store.runs(f"tags.retraining = '{identity}'")
    if len(earlier) == 1 + len(routers) and all(run.info.status == "FINISHED" for run in earlier):
        return next(run for run in earlier if run.data.tags["kind"] == "retraining")
    for run in earlier:  # interrupted, or partly deleted by hand
        _delete(store, run.info.run_id)
    retraining = Retraining(store, params, {"retraining": identity, **lineage()})
    return store.client.get_run(_log_all(retraining, routers, stages))


def _log_all(
    retraining: Retraining, routers: Sequence[Iteration], stages: Mapping[str, float | None]
) -> str:
    """Log the run of the retraining with its children, and return its id."""
    store, params, tags = retraining
    named = f"retraining {tags['retraining'][:7]}"
    with _run(store, named, tags | run_tags() | {"kind": "retraining"}) as parent:
        _log_retraining(store, parent, params, _overview(routers[-1], stages))
        slm = keep_slm(store)
        with report_page(store.client, params) as page:
            for router in routers:
                headline = _headline() if router == routers[-1] else {}
                with _iteration_run(retraining, parent, router) as run_id:
                    _log_iteration(retraining, run_id, router, headline)
                    store.client.log_artifact(run_id, str(page))
                    log_router(router.router, router.report, slm, params)
    return parent


def _delete(store: Store, run_id: str) -> None:
    """Delete a run, and its logged router unless a version uses it."""
    if not store.client.search_model_versions(f"run_id = '{run_id}'"):
        logged = f"source_run_id = '{run_id}'"
        for model in store.client.search_logged_models([store.experiment_id], logged):
            store.client.delete_logged_model(model.model_id)
    store.client.delete_run(run_id)


def children(store: Store, parent: str) -> list[Run]:
    """Return the iterations of a retraining in order, with deleted ones: versions may use them."""
    runs = store.runs(f"tags.`mlflow.parentRunId` = '{parent}'", ViewType.ALL)
    return sorted(runs, key=lambda run: int(run.data.tags["iteration"]))


@contextmanager
def _run(store: Store, name: str, tags: Mapping[str, str]) -> Iterator[str]:
    """Start a run that is active inside the block and ends FINISHED, or FAILED on an exception."""
    # A run that `mlflow.start_run` creates has a tag with a path on this machine.
    run = store.client.create_run(store.experiment_id, run_name=name, tags=dict(tags))
    with mlflow.start_run(run_id=run.info.run_id, nested=True):
        yield run.info.run_id


def _overview(last: Iteration, stages: Mapping[str, float | None]) -> dict[str, float | None]:
    """Collect a retraining's numbers: headlines of its last router, and seconds of its stages."""
    quality = {
        f"all/{name}": value for name, value in headlines(section(last.metrics, "all")).items()
    }
    return (
        _headline()
        | quality
        | {f"seconds/{s.replace('@', '_')}": taken for s, taken in stages.items()}
    )


def _headline() -> dict[str, float]:
    """Return the headline numbers of the retraining, which are those of its last router."""
    numbers: dict[str, float] = read_json(paths.SUMMARY / "headline.json")
    return numbers


def _log_retraining(
    store: Store, run_id: str, params: Params, overview: Mapping[str, float | None]
) -> None:
    losses = {"finetune/loss": read_json(paths.FINETUNE)["loss"]}
    metrics = [*numbers(overview), *series(losses), *system.samples()]
    log(store, run_id, flatten(params.model_dump(mode="json", by_alias=True), "."), metrics)
    _log_inputs(store, run_id, {paths.referenced(split): split for split in SPLITS})
    for file in (LOCK, PARAMS, *versioned()):
        store.client.log_artifact(run_id, str(file), str(PIPELINE / file.parent))
    store.client.log_artifacts(run_id, str(paths.SUMMARY), "summary")
    # MLflow cuts a tag off after 8000 characters, so only the first table is shown.
    shown = (paths.SUMMARY / "table.md").read_text().partition("\n## ")[0]
    store.client.set_tag(run_id, "mlflow.note.content", shown)


def _iteration_run(
    retraining: Retraining, parent: str, router: Iteration
) -> AbstractContextManager[str]:
    """Start the run of an iteration below that of its retraining."""
    store, _, tags = retraining
    card = read_json(router.router / "router.json")
    own = {
        "kind": "iteration",
        "iteration": str(router.number),
        "digest": router.digest,
        **_rule_tags(router.rule),
        "heads": ", ".join(card["heads"]),
        **router.conditions.fields,
        **_label_tags(card.get("labels", {})),
        MLFLOW_LOGGED_ARTIFACTS: json.dumps([{"path": QUESTIONS, "type": "table"}]),
        "mlflow.parentRunId": parent,
    }
    return _run(store, f"router {router.number} ({tags['retraining'][:7]})", tags | own)


def _log_iteration(
    retraining: Retraining, run_id: str, router: Iteration, headline: Mapping[str, float]
) -> None:
    store, params, _ = retraining
    sections = params.model_dump(mode="json", include=ITERATION_SECTIONS)
    metrics = numbers({**router.metrics, **headline}) + series(router.series)
    log(store, run_id, flatten(sections, "."), metrics)
    used = {paths.preferences(router.number): "training"}
    _log_inputs(store, run_id, used | {paths.referenced(s): s for s in ("validation", "test")})
    store.client.log_artifacts(run_id, str(router.report), "report")
    store.client.log_artifact(run_id, str(paths.transcript(router.number)), "report")
    store.client.log_artifacts(run_id, str(paths.RIVALS), "rivals")
    store.client.log_dict(run_id, router.questions(), QUESTIONS)


def _rule_tags(rule: Rule) -> dict[str, str]:
    """Return the rule as text, and in parts for searches."""
    numbers = {"at": f"{rule.at:.6g}", "audit": f"{rule.audit:.6g}"}
    return {"rule": f"{rule:.4g}", "visit": rule.visit, "by": rule.by} | numbers


def _label_tags(labels: Mapping[str, Any]) -> dict[str, str]:
    """Return how a router's labels were made. A margin, in nats, exists only for `suffix`."""
    known = {name: labels[name] for name in LABELS if labels.get(name) is not None}
    return {name: v if isinstance(v, str) else f"{v:.4g}" for name, v in known.items()}


def _log_inputs(store: Store, run_id: str, used: Mapping[Path, str]) -> None:
    """Log files as inputs, each with its role, DVC's digest and its path in the project."""
    inputs = []
    for file, role in used.items():
        md5 = file_md5(file)
        source = json.dumps({"url": f"dvc://{file.as_posix()}?md5={md5}"})
        dataset = Dataset(name=file.as_posix(), digest=md5, source_type="dvc", source=source)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", role)]))
    store.client.log_inputs(run_id, inputs)
