"""Tell MLflow where the promise of a version stands while it serves."""

import logging
from datetime import UTC, datetime

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.entities.model_registry import ModelVersion

from citer.config.params import load_params
from citer.serving.promise import Standing, Step
from flows.tracking.registry import find_version, run_of
from flows.tracking.store import open_store

LOG = logging.getLogger(__name__)


def log_standing(version: str, standing: Standing) -> None:
    """Log the evidence as metrics of a version's run, and its steps in its description.

    `version` is NAME/VERSION. A metric's step is the number of the last shadow answer. Repeated
    calls add nothing, and a later one adds what a failed one could not. Errors, such as a store
    that does not answer, are written to the log.
    """
    try:
        client = open_store(load_params().register_.experiment).client
        known = find_version(client, *version.split("/"))
        _describe(client, known, standing)
        if standing.seen:
            client.log_batch(run_of(known).info.run_id, metrics=_metrics(standing))
    except Exception as error:
        LOG.warning("%s: MLflow does not know where its promise stands: %s", version, error)


def _describe(client: MlflowClient, known: ModelVersion, standing: Standing) -> None:
    written = known.description or ""
    new = [line for line in map(_line, standing.steps) if line not in written]
    if new:
        text = "\n\n".join([written, *new])
        client.update_model_version(known.name, known.version, text)


def _line(step: Step) -> str:
    changed = "revoked" if step.back else "restored"
    return f"{step.at} UTC promise {changed} after {step.why}: rule `{step.rule}` in force"


def _metrics(standing: Standing) -> list[Metric]:
    at = datetime.fromisoformat(standing.at).replace(tzinfo=UTC).timestamp()
    numbers = {
        "serving/e_detector": standing.detector.value,
        "serving/e_value": standing.product.value,
        "serving/lost_share": standing.lost / max(standing.shadowed, 1),
        "serving/place": standing.place,
    }
    return [Metric(name, value, int(1000 * at), standing.seen) for name, value in numbers.items()]
