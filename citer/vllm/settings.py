"""The plugin's settings, `citer` in vLLM's `--additional-config`, and the rules of requests.

--additional-config '{"citer": {"router": "models:/citer-router@champion"}}'
extra_body={"citer": {"rule": "risk 0.8 audit 0.1"}}
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import ValidationError, model_validator

from citer.config.params import RuleText
from citer.decoding.policy import head_name
from citer.errors import InputError
from citer.rule import Rule
from citer.sections import LocalPath, Section, complaint

AnySection = TypeVar("AnySection", bound=Section)


class Settings(Section):
    """Where the router is, and what it does for requests that name no rule.

    router: a folder, `models:/NAME@ALIAS` or `models:/NAME/VERSION`
    slm: the SLM's folder, if the router's folder has none; by default the one its card names
    rule: default: the router's registered rule
    log: a folder for the answers of chat requests, as `prepare.traffic` reads them
    redact: `MODULE:FUNCTION` that changes or leaves out their rows
    """

    router: LocalPath
    slm: LocalPath | None = None
    rule: RuleText | None = None
    log: LocalPath | None = None
    redact: str | None = None

    @model_validator(mode="after")
    def redacts_a_log(self) -> Self:
        if self.redact and not self.log:
            raise ValueError("redact: expected log, too")
        return self


class Asked(Section):
    """What one request asks for."""

    rule: RuleText


def parsed(section: type[AnySection], content: Any, place: str) -> AnySection:
    """Check a section. Raises InputError that begins with `place`."""
    try:
        return section.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{place}: {complaint(error)}") from None


@dataclass(frozen=True)
class Served:
    """What requests may ask of a server: its router's heads, and its rule if they ask for none."""

    rule: Rule
    heads: Collection[str]

    def asked(self, content: Any) -> Rule:
        """Return the rule of a request whose field `citer` has this content, or None.

        Raises InputError for an unknown key, a rule that is not valid, or one whose head the
        router lacks.
        """
        rule = self.rule if content is None else parsed(Asked, content, "citer").rule
        if rule.asks_slm:
            head_name(self.heads, rule)
        return rule
