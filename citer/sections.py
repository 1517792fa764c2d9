"""Strict sections of settings: the types of values, and an error in words for a bad one."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from citer.errors import shown

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0, le=10**9)]
Questions = Annotated[int, Field(gt=0, le=10**6)]
Slots = Annotated[int, Field(gt=0, le=2**14)]  # sequences in flight; each has a KV cache
Tokens = Annotated[int, Field(gt=0, le=2**24)]
Rate = Annotated[float, Field(gt=0, le=10)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Listed = Field(strict=False)  # YAML has lists, a frozen section has tuples
SomeListed = Field(strict=False, min_length=1)
Source = Literal["auto", "given", "llm", "both"]  # of references
Against = Literal["auto", "answers", "llm"]  # what answers are compared with
CandidateName = Literal[
    "citer",
    "audited",
    "citer_s",
    "co_llm",
    "entropy",
    "bild",
    "speculative",
    "lookup",
    "exact",
    "any",
]
BoundName = Literal["random", "query", "oracle"]


def _can_be_a_path(text: str) -> str:
    if not (text.isprintable() and 0 < len(text) <= 2000) or max(map(len, text.split("/"))) > 200:
        raise ValueError(f"{shown(text)}: expected a path with names of at most 200 letters")
    return text


LocalPath = Annotated[str, AfterValidator(_can_be_a_path)]


class Section(BaseModel):
    """A section of settings: strict types, frozen, and no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def name_the_known_keys(cls, content: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(content)
        except ValidationError as invalid:
            errors = [cls._detailed(error) for error in invalid.errors()]
            raise ValidationError.from_exception_data(cls.__name__, errors) from None

    @classmethod
    def _detailed(cls, error: ErrorDetails) -> InitErrorDetails:
        """Return an error. That of an unknown key also names those that are known."""
        kind, place, text = error["type"], error["loc"], error["msg"]
        if kind == "extra_forbidden":
            known = ", ".join(field.alias or name for name, field in cls.model_fields.items())
            kind, text = "unknown_key", f"unknown key {place[-1]!r}; expected {known}"
            place = place[:-1]
        own = PydanticCustomError(kind, "{text}", {**error.get("ctx", {}), "text": text})
        return InitErrorDetails(type=own, loc=place, input=error["input"])


AnySection = TypeVar("AnySection", bound=Section)


def complaint(invalid: ValidationError) -> str:
    """Return one line about the first error, of an unknown key if there is one."""
    # A misspelled key is missing, too.
    return in_words(min(invalid.errors(), key=lambda error: error["type"] != "unknown_key"))


def in_words(error: ErrorDetails) -> str:
    """Return one line about an error: the key, its value, what was expected."""
    key = ".".join(str(part) for part in error["loc"]) or "top level"
    match error["type"]:
        case "missing":
            return f"{key}: missing"
        case "json_invalid":
            return f"{key}: not JSON: {error['ctx']['error']}"
        case "value_error":  # raised by our validators; the message has the value
            return f"{key}: {error['msg'].removeprefix('Value error, ')}"
        case "unknown_key":
            return f"{key}: {error['msg']}"
        case "too_short" | "too_long" | "string_too_short" | "string_too_long" as kind:
            number = error["ctx"].get("min_length", error["ctx"].get("max_length"))
            unit = ("character" if "string" in kind else "item") + "s" * (number != 1)
            expected = f"expected at {'least' if 'short' in kind else 'most'} {number} {unit}"
        case "model_type":
            expected = "expected a section of keys"
        case "string_pattern_mismatch":
            expected = f"expected text that matches {error['ctx']['pattern']}"
        case "tuple_type":
            expected = "expected a list"
        case _:
            expected = error["msg"].replace("Input should be", "expected")
    return f"{key}: {shown(error['input'])}: {expected}"
