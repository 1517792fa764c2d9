"""Events for Prefect's server: the agreement of served answers is low, a router was kept back."""

from collections.abc import Mapping
from typing import Any

from prefect.events import emit_event

AGREEMENT_LOW = "citer.serving.agreement.low"
KEPT_BACK = "citer.router.kept-back"


def agreement_low(router: str, found: Mapping[str, Any]) -> None:
    """Emit the event, with `found` (see `citer.serving.drift`) as its payload.

    `router` is the version that serves, such as `citer-router/1`.
    """
    _emit(AGREEMENT_LOW, router, found)


def kept_back(router: str, reason: str) -> None:
    """Emit the event of a new version that the gate did not promote, with the gate's reason."""
    _emit(KEPT_BACK, router, {"reason": reason})


def _emit(event: str, router: str, payload: Mapping[str, Any]) -> None:
    """Queue an event; Prefect sends it from a thread."""
    resource = {"prefect.resource.id": f"citer.router.{router}", "prefect.resource.name": router}
    emit_event(event, resource=resource, payload={"router": router, **payload})
