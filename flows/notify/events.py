"""Events for Prefect's server: a version's promise has changed, a router was kept back."""

from collections.abc import Mapping
from typing import Any

from mlflow.entities.model_registry import ModelVersion
from prefect.events import emit_event

from citer.serving.promise import Standing, Step
from flows.server import has_server

REVOKED, RESTORED = "citer.promise.revoked", "citer.promise.restored"
KEPT_BACK = "citer.router.kept-back"


def promise_changed(version: str, standing: Standing, step: Step) -> None:
    """Emit the event of a step of `version`, such as `citer-router/1`, if there is a server."""
    if not has_server():
        return
    place, last = standing.promise.rules.index(step.rule), len(standing.promise.path) - 1
    rules = {"before": str(step.before), "rule": str(step.rule), "place": place, "last": last}
    _emit(REVOKED if step.back else RESTORED, version, step._asdict() | rules)


def kept_back(version: ModelVersion) -> None:
    """Emit the event of a new version that the gate did not promote, with the gate's reason."""
    _emit(KEPT_BACK, f"{version.name}/{version.version}", {"reason": version.tags["reason"]})


def _emit(event: str, router: str, payload: Mapping[str, Any]) -> None:
    """Queue an event; Prefect sends it from a thread."""
    resource = {"prefect.resource.id": f"citer.router.{router}", "prefect.resource.name": router}
    emit_event(event, resource=resource, payload={"router": router, **payload})
