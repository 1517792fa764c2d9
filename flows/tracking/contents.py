"""Log what a retraining gave: its run, a child run for each iteration, and the report page."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from citer.config.params import Params
from citer.errors import InputError
from citer.report.page import Champion
from citer.report.tokens import Transcript
from citer.rule import Rule
from citer.stages import paths
from citer.stages.report import write_report_page
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_as, read_json
from flows.dvc_commands import LOCK, PARAMS, file_md5
from flows.own import versioned
from flows.tracking.iteration import Iteration, flatten, headlines, iterations, section
from flows.tracking.model import keep_slm, log_router
from flows.tracking.retraining import NOTE, code_tags, open_run, start_run
from flows.tracking.store import CHAMPION, Store

LABELS = ("references", "outcome", "margin")  # what a card says about the labels
ITERATION_SECTIONS = {"seed", "pair", "decode", "label", "train", "evaluate"}
PIPELINE = Path("pipeline")  # the artifacts that a restore puts back, under their paths
QUESTIONS = "questions.json"  # the artifact that MLflow's page shows as a table


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
    with report_page(store.client, params) as page:
        for router in routers:
            headline = _headline() if router == routers[-1] else {}
            with _iteration_run(retraining, router) as run:
                _log_iteration(retraining, run, router, headline)
                store.client.log_artifact(run.info.run_id, str(page))
                log_router(router.router, router.report, slm, params)
    _log_retraining(retraining, routers[-1])
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


def _headline() -> dict[str, float]:
    numbers: dict[str, float] = read_json(paths.SUMMARY / "headline.json")
    return numbers


def _log_retraining(retraining: Retraining, last: Iteration) -> None:
    """Log a retraining. Its headline numbers are those of its last router."""
    store, params, parent, tags = retraining
    run_id = parent.info.run_id
    quality = headlines(section(last.metrics, "all"))
    overview = _headline() | {f"all/{name}": value for name, value in quality.items()}
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
    own = {
        "kind": "iteration",
        "iteration": str(router.number),
        "digest": router.digest,
        **_rule_tags(router.rule),
        "heads": ", ".join(card["heads"]),
        **router.conditions.fields,
        **_label_tags(card.get("labels", {})),
        MLFLOW_LOGGED_ARTIFACTS: json.dumps([{"path": QUESTIONS, "type": "table"}]),
        "mlflow.parentRunId": parent.info.run_id,
    }
    name = f"router {router.number} ({tags['retraining'][:7]})"
    # A run that `mlflow.start_run` creates has a tag with a path on this machine.
    run = store.client.create_run(store.experiment_id, run_name=name, tags=tags | own)
    with mlflow.start_run(run_id=run.info.run_id, nested=True):
        yield run


def _log_iteration(
    retraining: Retraining, run: Run, router: Iteration, headline: Mapping[str, float]
) -> None:
    store, params, run_id = retraining.store, retraining.params, run.info.run_id
    sections = params.model_dump(mode="json", include=ITERATION_SECTIONS)
    store.log(run, flatten(sections, "."), {**router.metrics, **headline}, router.series)
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


@contextmanager
def report_page(client: MlflowClient, params: Params) -> Iterator[Path]:
    """Yield the page of the retraining in the current folder.

    If the champion's run has its `tokens.json`, the page shows its answers beside the new ones.
    """
    with TemporaryDirectory() as folder:
        page = Path(folder) / paths.PAGE.name
        if champion := _champion(client, params.register_.model_name, folder):
            write_report_page(params, page, champion)
        yield page if champion else paths.PAGE


def _champion(client: MlflowClient, name: str, folder: str) -> Champion | None:
    """Download the champion's tokens. Return None if there are none, or an earlier citer's."""
    with suppress(MlflowException, OSError, InputError):
        version = client.get_model_version_by_alias(name, CHAMPION)
        uri = f"runs:/{version.run_id}/report/tokens.json"
        tokens = Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
        read_as(tokens, Transcript)
        return Champion(f"version {version.version}", tokens)
    return None
