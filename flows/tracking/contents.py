"""The files of a retraining, and what MLflow keeps of them: a run, and a child of it per router."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Dataset, DatasetInput, InputTag, Run, ViewType

from citer.config.params import Params
from citer.evaluation.measure import MEASURES, Conditions
from citer.rule import Rule
from citer.stages import paths
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_json, table_metadata
from flows.dvc_commands import LOCK, PARAMS, file_md5
from flows.own import versioned
from flows.tracking.model import keep_slm, log_router
from flows.tracking.retraining import NOTE, code_tags, discard, open_run, start_run
from flows.tracking.store import Store

HEADLINES = {*MEASURES, "llm_fraction", "tokens_per_answer"}  # and the costs
UNBOUND = {"data", "labels", "schema_version"}  # a card's keys about the origin of its weights
ITERATION_SECTIONS = {"seed", "pair", "decode", "label", "train", "evaluate"}
# Interrupted, or made twice by a call that was repeated.
HALF_LOGGED = " and attributes.status != 'FINISHED'"
PIPELINE = Path("pipeline")  # the artifacts that a restore puts back, under their paths


@dataclass(frozen=True)
class Iteration:
    """The files of router k and of its report. 0 is what needs no preferences."""

    number: int

    @property
    def router(self) -> Path:
        return paths.router(self.number) if self.number else paths.COMMON

    @property
    def learnt(self) -> Path:
        """What the heads learnt from."""
        return paths.preferences(self.number) if self.number else paths.referenced("preference")

    @property
    def report(self) -> Path:
        return paths.report(self.number)

    @cached_property
    def digest(self) -> str:
        """Digest of the weights, the card, the rule, the quality and the bytes moved.

        The paths of the pair and what is `UNBOUND` are left out. They depend on the code that wrote
        them, and other code may produce the same router.
        """
        card = read_json(self.router / "router.json")
        bound = {key: value for key, value in card.items() if key not in UNBOUND}
        bound |= {model: card[model]["digest"] for model in ("slm", "llm")}
        weights = self.router.glob("router.safetensors")
        report = (self.report / name for name in ("threshold.json", "metrics.json"))
        return digest(json.dumps(bound, sort_keys=True), *weights, *report)

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics on test and of training.

        `all/` and a section for each task hold the deployed method, `rivals/` the headlines of
        the other methods, and `train/` the router's training, without `losses`.
        """
        methods = read_json(self.report / "metrics.json")
        own = methods.pop(read_json(self.report / paths.DEPLOYED)["method"])
        tasks = {name: own.pop(name) for name in list(own) if isinstance(own[name], dict)}
        rivals = {name: headlines(numbers) for name, numbers in methods.items()}
        train = read_json(self.router / "metrics.json")
        train.pop("holdout_loss", None)
        sections = {"all": own, **tasks, "rivals": flatten(rivals, "_"), "train": train}
        return flatten(sections, "/")

    @property
    def losses(self) -> dict[str, list[float]]:
        """The losses of training, by epoch."""
        curve = read_json(self.router / paths.CURVE)
        return {"train/loss": curve["train_loss"], "train/holdout_loss": curve["holdout_loss"]}


def iterations(stages: Iterable[str]) -> list[Iteration]:
    """List the iterations of dvc.yaml. The folder may hold files of others."""
    named = (stage.partition("@") for stage in stages)
    return [Iteration(k) for k in sorted(int(key) for name, _, key in named if name == "evaluate")]


def so_far(stages: Iterable[str]) -> dict[str, Iteration]:
    """Return the routers before the last one, by the stage that completes each."""
    earlier = {f"choose@{each.number}": each for each in iterations(stages)[:-1]}
    return {"choose0": Iteration(0), **earlier}


def headlines(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Select the few metrics that describe a router."""
    return {k: v for k, v in metrics.items() if k in HEADLINES or re.fullmatch(r"cost_b\d+", k)}


def flatten(nested: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}."""
    [flat] = pd.json_normalize({**nested}, sep=separator).to_dict("records")
    return flat


def track(store: Store, params: Params, stages: Iterable[str]) -> Run:
    """Return the finished run of the retraining in the current folder; log it if needed.

    A run that was opened for it is deleted if there is nothing new.
    """
    routers, opened = iterations(stages), open_run(store)
    below = children(store, opened.info.run_id) if opened else []
    for run in below:  # registered before there was a page
        store.client.log_artifact(run.info.run_id, str(paths.PAGE))
    identity = digest(*(router.digest for router in routers))
    if known := _known(store, identity, routers):
        if opened:
            discard(store, opened.info.run_id, HALF_LOGGED)
            store.client.set_terminated(opened.info.run_id)
            if not below:
                store.client.delete_run(opened.info.run_id)
        return known
    parent = opened or start_run(store)
    done = {run.data.tags["digest"]: run for run in below}
    for router in routers:
        run = done.get(router.digest) or _log_iteration(store, params, parent, router)
        store.client.log_artifact(run.info.run_id, str(paths.transcript(router.number)), "report")
        store.client.log_artifact(run.info.run_id, str(paths.PAGE))
    _log_retraining(store, params, parent, identity)
    return store.client.get_run(parent.info.run_id)


def _known(store: Store, identity: str, routers: Iterable[Iteration]) -> Run | None:
    """Return the finished run of a retraining that has the runs of its routers, or None."""
    digests = {router.digest for router in routers}
    ended = "tags.kind = 'retraining' and attributes.status = 'FINISHED'"
    for run in store.runs(f"{ended} and tags.retraining = '{identity}'"):
        if digests <= {each.data.tags["digest"] for each in children(store, run.info.run_id)}:
            return run
    return None


def track_early(store: Store, params: Params, router: Iteration) -> Run | None:
    """Return the finished run of a router, logged below the open run; None if no run is open."""
    if not (parent := open_run(store)):
        return None
    query = f"tags.digest = '{router.digest}' and attributes.status = 'FINISHED'"
    if known := store.runs(query):
        return known[0]
    _log_state(store, parent)  # first, so that a restore finds it
    return _log_iteration(store, params, parent, router)


def children(store: Store, parent: str, view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
    """Return the finished runs of a retraining's routers, in order."""
    query = f"tags.`mlflow.parentRunId` = '{parent}' and attributes.status = 'FINISHED'"
    return sorted(store.runs(query, view), key=lambda run: int(run.data.tags["iteration"]))


def _log_retraining(store: Store, params: Params, parent: Run, identity: str) -> None:
    """Log a retraining, and end its run. Its headline numbers are those of its last router."""
    run_id, overview = parent.info.run_id, read_json(paths.SUMMARY / "headline.json")
    losses = {"finetune/loss": read_json(paths.FINETUNE)["loss"]}
    settings = params.model_dump(mode="json", by_alias=True)
    store.log(parent, flatten(settings, "."), overview, losses)
    _log_inputs(store, run_id, {paths.referenced(split): split for split in SPLITS})
    _log_state(store, parent)
    store.client.log_artifacts(run_id, str(paths.SUMMARY), "summary")
    # MLflow cuts a tag off after 8000 characters, so only the first table is shown.
    shown = (paths.SUMMARY / "table.md").read_text().partition("\n## ")[0]
    tags = {"retraining": identity, **code_tags(), "dvc_lock": file_md5(LOCK), NOTE: shown}
    for key, value in tags.items():
        store.client.set_tag(run_id, key, value)
    discard(store, run_id, HALF_LOGGED)
    store.client.set_terminated(run_id)


def _log_state(store: Store, parent: Run) -> None:
    """Log what a restore puts back."""
    for file in (LOCK, PARAMS, *versioned()):
        store.client.log_artifact(parent.info.run_id, str(file), str(PIPELINE / file.parent))


def _start_below(store: Store, parent: Run, router: Iteration) -> str:
    """Start the run of an iteration below that of its retraining. Returns its id."""
    card = read_json(router.router / "router.json")
    labels = card.get("labels", {}).items()  # references, outcome, margin
    tags = {
        "kind": "iteration",
        "iteration": str(router.number),
        "digest": router.digest,
        "rule": f"{Rule.parse(read_json(router.report / paths.DEPLOYED)['rule']):.4g}",
        "heads": ", ".join(card["heads"]),
        **Conditions.stored(table_metadata(router.report / "outcomes.parquet")).fields,
        **{name: str(value) for name, value in labels if value is not None},
        "mlflow.parentRunId": parent.info.run_id,
        **code_tags(),
    }
    name = f"router {router.number} ({router.digest[:7]})"
    return store.client.create_run(store.experiment_id, run_name=name, tags=tags).info.run_id


def _log_iteration(store: Store, params: Params, parent: Run, router: Iteration) -> Run:
    """Log what is known of a router when its rule is chosen.

    The run ends FINISHED, or FAILED on an exception.
    """
    slm, run_id = keep_slm(store), _start_below(store, parent, router)
    with mlflow.start_run(run_id=run_id, nested=True) as run:
        sections = params.model_dump(mode="json", include=ITERATION_SECTIONS)
        store.log(run, flatten(sections, "."), router.metrics, router.losses)
        used = {router.learnt: "training"}
        _log_inputs(store, run_id, used | {paths.referenced(s): s for s in ("validation", "test")})
        store.client.log_artifacts(run_id, str(router.report), "report")
        store.client.log_artifacts(run_id, str(paths.RIVALS), "rivals")
        log_router(router.router, router.report, slm, params)
    return store.client.get_run(run_id)


def _log_inputs(store: Store, run_id: str, used: Mapping[Path, str]) -> None:
    """Log files as inputs, each with its role, DVC's digest and its path in the project."""
    inputs = []
    for file, role in used.items():
        md5 = file_md5(file)
        source = json.dumps({"url": f"dvc://{file.as_posix()}?md5={md5}"})
        dataset = Dataset(name=file.as_posix(), digest=md5, source_type="dvc", source=source)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", role)]))
    store.client.log_inputs(run_id, inputs)
