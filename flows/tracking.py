"""Log MLflow runs from files: one for a retraining, and a child run for each iteration."""

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LifecycleStage,
    Metric,
    Param,
    Run,
    ViewType,
)

from citer.config import Params
from citer.errors import InputError
from citer.evaluation.measure import MEASURES, Conditions
from citer.io import digest, read_json, table_metadata
from citer.rule import Rule
from citer.schema import SPLITS
from citer.stages import paths
from flows.dvc_commands import LOCK, PARAMS
from flows.outcomes import deployed_method
from flows.packaging import log_router
from flows.slm import keep_slm
from flows.store import Store

HEADLINES = {*MEASURES, "llm_fraction", "tokens_per_answer"}  # and the costs
LABELS = ("references", "outcome", "margin")  # what a card says about the labels
ITERATION_SECTIONS = {"pair", "label", "train", "evaluate"}
UNBOUND = {"data", "labels", "schema_version"}  # a card's keys about the origin of its weights
PIPELINE = "pipeline"  # the artifact folder of dvc.lock and params.yaml


@dataclass(frozen=True)
class Iteration:
    """The files of router k and of its report."""

    number: int

    @property
    def router(self) -> Path:
        return paths.router(self.number)

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

    @cached_property
    def threshold(self) -> dict[str, Any]:
        """The deployed rule with its certificate: the cheapest of `chosen.json`."""
        return read_json(self.report / "threshold.json")

    @cached_property
    def rule(self) -> Rule:
        return Rule(**self.threshold["rule"])

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics on test and of training.

        `all/` and a section for each task hold the deployed method, `rivals/` the headlines of
        the other methods, and `train/` the router's training.
        """
        methods = read_json(self.report / "metrics.json")
        chosen = read_json(self.report / "chosen.json")
        own = methods.pop(deployed_method(chosen, self.threshold))
        tasks = {name: own.pop(name) for name in list(own) if isinstance(own[name], dict)}
        rivals = {name: headlines(numbers) for name, numbers in methods.items()}
        train = read_json(self.router / "metrics.json")
        sections = {"all": own, **tasks, "rivals": flatten(rivals, "_"), "train": train}
        return flatten(sections, "/")


def track(store: Store, params: Params, stages: Mapping[str, float | None]) -> Run:
    """Return the finished run of the retraining in the current folder; log it if needed.

    Raises InputError if the experiment is deleted: MLflow keeps its name but accepts no runs.
    """
    experiment = store.client.get_experiment(store.experiment_id)
    if experiment.lifecycle_stage == LifecycleStage.DELETED:
        remedy = f"`mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        raise InputError(f"register.experiment: {experiment.name!r} is deleted in MLflow; {remedy}")
    routers = _iterations(stages)
    identity = digest(*(router.digest for router in routers))
    earlier = store.runs(f"tags.retraining = '{identity}'")
    if len(earlier) == 1 + len(routers) and all(run.info.status == "FINISHED" for run in earlier):
        return next(run for run in earlier if run.data.tags["kind"] == "retraining")
    for run in earlier:  # interrupted, or partly deleted by hand
        _delete(store, run.info.run_id)
    tags = {"retraining": identity, **_lineage()}
    with _run(store, f"retraining {identity[:7]}", tags | {"kind": "retraining"}) as parent:
        _log_retraining(store, parent, params, _overview(routers[-1], stages))
        slm = keep_slm(store)
        for router in routers:
            _log_iteration(store, parent, router, slm, params, tags)
    return store.client.get_run(parent)


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


def headlines(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Select the few metrics that describe a router."""
    named = {key.removeprefix("all/"): value for key, value in metrics.items()}
    return {k: v for k, v in named.items() if k in HEADLINES or re.fullmatch(r"cost_b\d+", k)}


def file_md5(path: Path) -> str:
    """Return the digest that DVC uses for a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def _iterations(stages: Iterable[str]) -> list[Iteration]:
    """List the iterations of dvc.yaml. The folder may hold files of others."""
    named = (stage.partition("@") for stage in stages)
    return [Iteration(k) for k in sorted(int(key) for name, _, key in named if name == "evaluate")]


def _lineage() -> dict[str, str]:
    """Identify the code. Lock and parameters are artifacts of the run and never count as dirty."""
    sha = _git("rev-parse", "HEAD") or "no repository"
    changed = _git("status", "--porcelain", "--", ".", f":!{LOCK}", f":!{PARAMS}", ":!data")
    return {
        "git_sha": sha,
        "git_dirty": str(bool(changed)).lower(),
        "dvc_lock": file_md5(LOCK),
        "mlflow.source.git.commit": sha,
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


@contextmanager
def _run(store: Store, name: str, tags: Mapping[str, str]) -> Iterator[str]:
    """Start a run that is active inside the block and ends FINISHED, or FAILED on an exception."""
    # A run that `mlflow.start_run` creates has a tag with a path on this machine.
    run = store.client.create_run(store.experiment_id, run_name=name, tags=dict(tags))
    with mlflow.start_run(run_id=run.info.run_id, nested=True):
        yield run.info.run_id


def _overview(last: Iteration, stages: Mapping[str, float | None]) -> dict[str, float | None]:
    """Collect a retraining's metrics: headlines of its last router, and seconds of its stages."""
    quality = {f"all/{name}": value for name, value in headlines(last.metrics).items()}
    return quality | {f"seconds/{s.replace('@', '_')}": taken for s, taken in stages.items()}


def _log_retraining(
    store: Store, run_id: str, params: Params, metrics: Mapping[str, float | None]
) -> None:
    _log(store, run_id, flatten(params.model_dump(mode="json", by_alias=True), "."), metrics)
    _log_inputs(store, run_id, {paths.referenced(split): split for split in SPLITS})
    for file in (LOCK, PARAMS):
        store.client.log_artifact(run_id, str(file), PIPELINE)
    store.client.log_artifacts(run_id, str(paths.SUMMARY), "summary")
    store.client.set_tag(run_id, "mlflow.note.content", (paths.SUMMARY / "table.md").read_text())


def _log_iteration(
    store: Store,
    parent: str,
    router: Iteration,
    slm: str,
    params: Params,
    tags: dict[str, str],
) -> None:
    card = read_json(router.router / "router.json")
    own = {
        "kind": "iteration",
        "iteration": str(router.number),
        "digest": router.digest,
        **_rule_tags(router.rule),
        "heads": ", ".join(card["heads"]),
        **Conditions.stored(table_metadata(router.report / "outcomes.parquet")).fields,
        **_label_tags(card.get("labels", {})),
        "mlflow.parentRunId": parent,
    }
    with _run(store, f"router {router.number} ({tags['retraining'][:7]})", tags | own) as run_id:
        sections = params.model_dump(mode="json", include=ITERATION_SECTIONS)
        _log(store, run_id, flatten(sections, "."), router.metrics)
        used = {paths.preferences(router.number): "training"}
        _log_inputs(store, run_id, used | {paths.referenced(s): s for s in ("validation", "test")})
        store.client.log_artifacts(run_id, str(router.report), "report")
        store.client.log_artifacts(run_id, str(paths.RIVALS), "rivals")
        log_router(router.router, router.report, slm, params)


def _rule_tags(rule: Rule) -> dict[str, str]:
    """Return the rule as text, and in parts for searches."""
    numbers = {"at": f"{rule.at:.6g}", "audit": f"{rule.audit:.6g}"}
    return {"rule": f"{rule:.4g}", "visit": rule.visit, "by": rule.by} | numbers


def _label_tags(labels: Mapping[str, Any]) -> dict[str, str]:
    """Return how a router's labels were made. A margin, in nats, exists only for `suffix`."""
    known = {name: labels[name] for name in LABELS if labels.get(name) is not None}
    return {name: v if isinstance(v, str) else f"{v:.4g}" for name, v in known.items()}


def _log(store: Store, run_id: str, params: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    now = time.time_ns() // 1_000_000
    numbers = [Metric(k, v, now, 0) for k, v in metrics.items() if isinstance(v, int | float)]
    texts = [Param(k, v if isinstance(v, str) else json.dumps(v)) for k, v in params.items()]
    store.client.log_batch(run_id, metrics=numbers, params=texts)


def flatten(nested: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, separator, f"{prefix}{key}{separator}")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _log_inputs(store: Store, run_id: str, used: Mapping[Path, str]) -> None:
    """Log files as inputs, each with its role, DVC's digest and its path in the project."""
    inputs = []
    for file, role in used.items():
        md5 = file_md5(file)
        source = json.dumps({"url": f"dvc://{file.as_posix()}?md5={md5}"})
        dataset = Dataset(name=file.as_posix(), digest=md5, source_type="dvc", source=source)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", role)]))
    store.client.log_inputs(run_id, inputs)
