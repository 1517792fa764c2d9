"""Strict sections of settings: the types of values, and a one-line error for the first bad one."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from citer.errors import InputError, read_text, shown

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
RivalName = Literal[
    "entropy",
    "confidence",
    "random",
    "speculative",
    "bild",
    "co_llm",
    "citer_s",
    "query",
    "oracle",
]


def _listed_once(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is listed twice")
    return names


Once = AfterValidator(_listed_once)


def _can_be_a_path(text: str) -> str:
    if not text.isprintable() or len(text) > 2000 or max(map(len, text.split("/"))) > 200:
        raise ValueError(f"{shown(text)}: expected a path with names of at most 200 letters")
    return text


LocalPath = Annotated[str, AfterValidator(_can_be_a_path)]


class Section(BaseModel):
    """A section of settings: strict types, frozen, and no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def only_known_keys(cls, content: Any) -> Any:
        # Checked before the fields: a misspelled key would otherwise be reported as missing.
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in content if isinstance(content, dict) else ():
            if key not in known:
                raise ValueError(f"unknown key {key!r}; expected {', '.join(known)}")
        return content


AnySection = TypeVar("AnySection", bound=Section)


def read_yaml(path: Path, section: type[AnySection]) -> AnySection:
    """Read and check a YAML file.

    Raises InputError with one line that names the key, its value and what was expected.
    """
    text = read_text(path)
    try:
        content = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1
        raise InputError(f"{path}:{line}: not YAML: {error.problem}") from None
    except Exception as error:  # the parser of a scalar may raise any exception
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        raise InputError(f"{path}: empty: expected a section of keys")
    try:
        return section.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {complaint(error)}") from None


def complaint(invalid: ValidationError) -> str:
    """Return one line about the first error: the key, its value, what was expected."""
    error = invalid.errors()[0]
    key = ".".join(str(part) for part in error["loc"]) or "top level"
    match error["type"]:
        case "missing":
            return f"{key}: missing; expected every key of this section"
        case "json_invalid":
            return f"{key}: not JSON: {error['ctx']['error']}"
        case "value_error":  # raised by our validators; the message has the value
            return f"{key}: {error['msg'].removeprefix('Value error, ')}"
        case "too_short" | "string_too_short":
            expected = f"expected at least {error['ctx']['min_length']}"
        case "model_type":
            expected = "expected a section of keys"
        case "string_pattern_mismatch":
            expected = f"expected text that matches {error['ctx']['pattern']}"
        case "tuple_type":
            expected = "expected a list"
        case _:
            expected = error["msg"].replace("Input should be", "expected")
    return f"{key}: {shown(error['input'])}: {expected}"
