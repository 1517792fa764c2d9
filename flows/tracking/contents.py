"""Log what a retraining gave: its run, and a child run for each iteration."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Run, ViewType

from citer.config.params import Params
from citer.rule import Rule
from citer.stages import paths
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_json
from flows.dvc_commands import LOCK, PARAMS, file_md5
from flows.own import versioned
from flows.tracking.iteration import Iteration, flatten, iterations
from flows.tracking.model import keep_slm, log_router
from flows.tracking.retraining import NOTE, code_tags, open_run, start_run
from flows.tracking.store import Store

LABELS = ("references", "outcome", "margin")  # what a card says of them; a margin for `suffix`
ITERATION_SECTIONS = {"seed", "pair", "decode", "label", "train", "evaluate"}
PIPELINE = Path("pipeline")  # the artifacts that a restore puts back, under their paths


class Retraining(NamedTuple):
    """What the runs of a retraining have in common."""

    store: Store
    params: Params
    parent: Run
    tags: dict[str, str]


def track(store: Store, params: Params, stages: Iterable[str]) -> Run:
    """Return the finished run of the retraining in the current folder; log it if needed.

    A run that was opened for it is deleted if there is nothing new.
    """
    routers = iterations(stages)
    identity = digest(*(router.digest for router in routers))
    earlier = store.runs(f"tags.retraining = '{identity}'")
    opened = open_run(store)
    if len(earlier) == 1 + len(routers) and all(run.info.status == "FINISHED" for run in earlier):
        if opened:
            store.client.set_terminated(opened.info.run_id)
            store.client.delete_run(opened.info.run_id)
        return next(run for run in earlier if run.data.tags["kind"] == "retraining")
    parent = opened or start_run(store)
    for run in earlier:  # interrupted, or partly deleted by hand
        if run.info.run_id != parent.info.run_id:
            _delete(store, run.info.run_id)
    tags = {"retraining": identity, **code_tags(), "dvc_lock": file_md5(LOCK)}
    _log_all(Retraining(store, params, parent, tags), routers)
    return store.client.get_run(parent.info.run_id)


def _log_all(retraining: Retraining, routers: Sequence[Iteration]) -> None:
    """Log the routers, then the retraining, whose run ends last."""
    store, params, parent, _ = retraining
    slm = keep_slm(store)
    for router in routers:
        with _iteration_run(retraining, router) as run:
            _log_iteration(retraining, run, router)
            log_router(router.router, router.report, slm, params)
    _log_retraining(retraining)
    store.client.set_terminated(parent.info.run_id)


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


def _log_retraining(retraining: Retraining) -> None:
    """Log a retraining. Its headline numbers are those of its last router."""
    store, params, parent, tags = retraining
    run_id, overview = parent.info.run_id, read_json(paths.SUMMARY / "headline.json")
    losses = {"finetune/loss": read_json(paths.FINETUNE)["loss"]}
    settings = params.model_dump(mode="json", by_alias=True)
    store.log(parent, flatten(settings, "."), overview, losses)
    _log_inputs(store, run_id, {paths.referenced(split): split for split in SPLITS})
    for file in (LOCK, PARAMS, *versioned()):
        store.client.log_artifact(run_id, str(file), str(PIPELINE / file.parent))
    store.client.log_artifacts(run_id, str(paths.SUMMARY), "summary")
    # MLflow cuts a tag off after 8000 characters, so only the first table is shown.
    shown = (paths.SUMMARY / "table.md").read_text().partition("\n## ")[0]
    for key, value in {**tags, NOTE: shown}.items():
        store.client.set_tag(run_id, key, value)
    store.client.update_run(run_id, name=f"retraining {tags['retraining'][:7]}")


@contextmanager
def _iteration_run(retraining: Retraining, router: Iteration) -> Iterator[Run]:
    """Start the run of an iteration below that of its retraining.

    It is active inside the block and ends FINISHED, or FAILED on an exception.
    """
    store, _, parent, tags = retraining
    card = read_json(router.router / "router.json")
    labels = card.get("labels", {})
    own = {
        "kind": "iteration",
        "iteration": str(router.number),
        "digest": router.digest,
        "rule": f"{Rule(**router.threshold['rule']):.4g}",
        "heads": ", ".join(card["heads"]),
        **router.conditions.fields,
        **{name: str(labels[name]) for name in LABELS if labels.get(name) is not None},
        "mlflow.parentRunId": parent.info.run_id,
    }
    name = f"router {router.number} ({tags['retraining'][:7]})"
    # A run that `mlflow.start_run` creates has a tag with a path on this machine.
    run = store.client.create_run(store.experiment_id, run_name=name, tags=tags | own)
    with mlflow.start_run(run_id=run.info.run_id, nested=True):
        yield run


def _log_iteration(retraining: Retraining, run: Run, router: Iteration) -> None:
    store, params, run_id = retraining.store, retraining.params, run.info.run_id
    sections = params.model_dump(mode="json", include=ITERATION_SECTIONS)
    store.log(run, flatten(sections, "."), router.metrics, router.losses)
    used = {paths.preferences(router.number): "training"}
    _log_inputs(store, run_id, used | {paths.referenced(s): s for s in ("validation", "test")})
    store.client.log_artifacts(run_id, str(router.report), "report")
    store.client.log_artifact(run_id, str(paths.transcript(router.number)), "report")
    store.client.log_artifacts(run_id, str(paths.RIVALS), "rivals")
    store.client.log_artifact(run_id, str(paths.PAGE))


def _log_inputs(store: Store, run_id: str, used: Mapping[Path, str]) -> None:
    """Log files as inputs, each with its role, DVC's digest and its path in the project."""
    inputs = []
    for file, role in used.items():
        md5 = file_md5(file)
        source = json.dumps({"url": f"dvc://{file.as_posix()}?md5={md5}"})
        dataset = Dataset(name=file.as_posix(), digest=md5, source_type="dvc", source=source)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", role)]))
    store.client.log_inputs(run_id, inputs)
