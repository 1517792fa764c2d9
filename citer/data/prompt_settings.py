"""The settings of a pair's prompts, as `params.yaml` and a router's card hold them."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from citer.checked import Listed, Section
from citer.data.tasks import EMBEDDED_TASKS

PromptKind = Literal["plain", "chat"]


class ChatParams(Section):
    """Input of a chat template besides the turns: a system prompt, and variables by name."""

    system: Annotated[str, Field(min_length=1)] | None = None
    variables: dict[str, JsonValue] = Field(default_factory=dict)


class PromptSettings(Section):
    """Everything from which a folder's prompt format is made. `tasks` are those in use.

    A router's card stores these settings, so that it can be served without `params.yaml`.
    """

    kind: PromptKind = "plain"
    chat: ChatParams = ChatParams()
    tasks: Annotated[tuple[str, ...], Listed] = EMBEDDED_TASKS
