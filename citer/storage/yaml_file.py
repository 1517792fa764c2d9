"""Read a YAML file as sections of settings, with all its errors at once, and change its values."""

import json
from collections.abc import Container, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.representer import RoundTripRepresenter

from citer.errors import InputError, read_text
from citer.sections import AnySection, Section, in_words

UNKNOWN = object()


def read_yaml(
    path: Path, section: type[AnySection], shipped: Path, optional: Container[str] = ()
) -> AnySection:
    """Read and check a YAML file.

    Each section but an `optional` one must have the keys that it has in `shipped`: DVC stops at a
    missing key, and may do so after hours. Raises InputError with a line for each error: the key,
    its value, what was expected, and the value in `shipped`. If `path` is not YAML, the only line
    says why.
    """
    content, defaults = _parsed(path), YAML(typ="safe").load(read_text(shipped))
    try:
        settings = section.model_validate(content)
    except ValidationError as invalid:
        lines = [line for error in invalid.errors() for line in _lines(error, defaults)]
        raise InputError(*(f"{path}: {line}" for line in lines)) from None
    needed = {name: own for name, own in defaults.items() if name not in optional}
    if missing := [*_missing(settings, content, needed)]:
        raise InputError(*(f"{path}: {line}" for line in missing))
    return settings


def _missing(settings: Section, content: Any, needed: Mapping[str, Any]) -> Iterator[str]:
    for name, defaults in needed.items():
        if isinstance(getattr(settings, name, None), Section):
            own = content.get(name, {})
            for key in (key for key in defaults if key not in own):
                yield f"{name}.{key}: missing; default: {_shown(defaults[key])}"


def _shown(default: Any) -> str:
    return json.dumps(default, ensure_ascii=False)


class _Representer(RoundTripRepresenter):
    """Writes null, which ruamel leaves out."""


_Representer.add_representer(
    type(None), lambda own, _: own.represent_scalar("tag:yaml.org,2002:null", "null")
)


def edited(path: Path, changes: Mapping[str, Any]) -> str:
    """Return a YAML file with other values, by keys such as `evaluate.bounds`.

    A list or a section that is replaced stands on one line. The comments of other keys stay.
    """
    yaml, text = YAML(), StringIO()
    yaml.preserve_quotes, yaml.width, yaml.Representer = True, 4096, _Representer
    content = yaml.load(read_text(path))
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = content
        for each in sections:
            section = section.setdefault(each, CommentedMap())
        section[name] = _flow(value)
    yaml.dump(content, text)
    return text.getvalue()


def _flow(value: Any) -> Any:
    """Let a list or a section be written in one line."""
    if not isinstance(value, list | dict):
        return value
    flow = CommentedSeq(value) if isinstance(value, list) else CommentedMap(value)
    flow.fa.set_flow_style()
    return flow


def _lines(error: ErrorDetails, shipped: Any) -> Iterator[str]:
    """Yield a line about an error. A missing section has a line for each of its keys."""
    place, default = error["loc"], shipped
    for part in place:
        default = default.get(part, UNKNOWN) if isinstance(default, dict) else UNKNOWN
    missing, section = error["type"] == "missing", isinstance(default, dict)
    if missing and section and len(place) == 1:
        for key in default:
            yield from _lines({**error, "loc": (*place, key)}, shipped)
    elif default is UNKNOWN or (section and not missing):
        yield in_words(error)
    else:
        yield f"{in_words(error)}; default: {_shown(default)}"


def _parsed(path: Path) -> Any:
    text = read_text(path)
    try:
        parsed = YAML(typ="safe", pure=True).load(text)
        YAML(typ="safe").load(text)  # as DVC does: its parser, in C, refuses more
    except MarkedYAMLError as error:
        place = f"{error.problem_mark.line + 1}:{error.problem_mark.column + 1}"
        raise InputError(f"{path}:{place}: not YAML: {error.problem}") from None
    except Exception as error:  # the parser of a scalar may raise any
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return parsed
