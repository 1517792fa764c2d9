"""Tell Prefect's server that the agreement of served answers is low."""

from collections.abc import Mapping
from typing import Any

from prefect.events import emit_event
from prefect.settings import get_current_settings

EVENT = "citer.agreement.low"


def reaches_prefect() -> bool:
    """Whether PREFECT_API_URL names a server. Without one, Prefect would start its own."""
    return bool(get_current_settings().api.url)


def agreement_low(router: str, found: Mapping[str, Any]) -> None:
    """Emit the event, with `found` (see `citer.watch`) as its payload.

    `router` is the version that serves. It returns before the event is sent.
    """
    resource = {"prefect.resource.id": f"citer.router.{router}", "prefect.resource.name": router}
    emit_event(EVENT, resource=resource, payload={"router": router, **found})
