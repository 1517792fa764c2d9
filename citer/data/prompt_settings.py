"""The settings of a pair's prompts, as `params.yaml` and a router's card hold them."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from citer.data.tasks import EMBEDDED_TASKS
from citer.sections import Listed, Section

PromptKind = Literal["plain", "chat"]
SomeText = Annotated[str, Field(min_length=1)]
StopStrings = Annotated[tuple[SomeText, ...], Listed]


class ChatParams(Section):
    """Input of a chat template besides the turns: a system prompt, and variables by name."""

    system: SomeText | None = None
    variables: dict[str, JsonValue] = Field(default_factory=dict)


class PromptSettings(Section):
    """Everything from which a folder's prompt format is made.

    `stop` has texts that end an answer. `tasks` are those in use.

    A router's card stores these settings, so that it can be served without `params.yaml`.
    """

    kind: PromptKind = "plain"
    chat: ChatParams = ChatParams()
    stop: StopStrings = ()
    tasks: Annotated[tuple[str, ...], Listed] = EMBEDDED_TASKS
