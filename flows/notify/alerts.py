"""Install the automations of Prefect's server, and the block that they notify."""

from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any, cast
from uuid import UUID

from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.types import SecretDict
from ruamel.yaml import YAML

from citer.errors import InputError
from citer.progress import say
from flows.checks import BLOCK, TARGET
from flows.server import answering, prefect_page, require_server

AUTOMATIONS = Path(__file__).with_name("automations.yaml")
WEBHOOK = "citer-alerts"  # the name of the block that this module writes
# Slack, Mattermost and Google Chat show this field of what is posted to their webhooks.
MESSAGE = {"text": "{{ subject }}\n{{ body }}"}


def install(target: str | None) -> None:
    """Create the automations of `AUTOMATIONS`; update those whose names exist.

    They notify `target`: the address of a webhook, or the TYPE/NAME of a notification block.
    Without it, those that only notify are left out. Raises InputError if the block does not exist
    or PREFECT_API_URL is not set, TemporaryError if its server does not answer.
    """
    require_server()
    with answering(), get_client(sync_client=True) as client:
        client.hello().raise_for_status()
        block = _block(target) if target else None
        for automation in _automations(block, prefect_page()):
            _put(client, automation)
            say(f"installed: {automation['name']}")


def _block(target: str) -> UUID:
    """Return the id of the block that notifies `target`. Raises InputError if none can."""
    if not BLOCK.fullmatch(target):
        webhook = CustomWebhookNotificationBlock(
            name=WEBHOOK,
            url="{{ address }}",
            secrets=SecretDict({"address": target}),  # which Prefect's page does not show
            json_data=MESSAGE,
            headers=None,
            cookies=None,
        )
        return cast(UUID, webhook.save(WEBHOOK, overwrite=True))
    try:
        block: Any = Block.load(target)
    except ValueError:
        raise InputError(f"{target}: no such block on this server; {TARGET}") from None
    if "notify" not in block.get_block_capabilities():
        raise InputError(f"{target}: not a notification block; {TARGET}")
    return cast(UUID, block._block_document_id)


def _automations(block: UUID | None, page: str) -> Iterator[dict[str, Any]]:
    """Read the automations that need no block, and with `block` all of them."""
    text = Template(AUTOMATIONS.read_text()).substitute(block=block, prefect=page)
    for automation in YAML(typ="safe").load(text)["automations"]:
        notifies = any(action["type"] == "send-notification" for action in automation["actions"])
        if block or not notifies:
            yield automation


def _put(client: SyncPrefectClient, automation: dict[str, Any]) -> None:
    """Create an automation, or update the one of this name and leave it disabled if it is."""
    known = client.read_automations_by_name(automation["name"])
    if known:
        enabled = {"enabled": known[0].enabled}
        client.update_automation(known[0].id, AutomationCore.model_validate(automation | enabled))
    else:
        client.create_automation(AutomationCore.model_validate(automation))
