"""Set `train.seeds` in params.yaml, which stays the only place of the parameters."""

import re
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from ruamel.yaml import YAML

from citer.config.params import Params, load_params
from citer.errors import InputError
from citer.storage.tables import replacing
from flows.dvc_commands import PARAMS

SCALAR = re.compile(r"[^\s,#}]+")


def set_seeds(seeds: int) -> None:
    """Change the number of seeds, and say so. The rest of the file stays, byte for byte.

    Raises InputError, and changes nothing, if params.yaml is invalid or has an unusual form.
    """
    params = load_params(PARAMS)
    train = params.train.model_copy(update={"seeds": seeds})
    if train == params.train:
        return
    with replacing(PARAMS) as aside:
        aside.write_bytes(_edited(PARAMS.read_bytes().decode(), seeds).encode())
        if not _says(aside, params.model_copy(update={"train": train})):
            raise InputError(f"{PARAMS}: cannot be edited; write `seeds: {seeds}` under `train`")
    change = f"{PARAMS}: train.seeds was {params.train.seeds}, is now {seeds}"
    Console().print(change, highlight=False, soft_wrap=True)


def _edited(text: str, seeds: int) -> str:
    """Replace the number in the text, or put it before the first key of its section."""
    places = (section := YAML().load(text)["train"]).lc
    if "seeds" in section:
        start = _offset(text, *places.value("seeds"))
        return text[:start] + SCALAR.sub(str(seeds), text[start:], count=1)
    line, column = places.key(next(iter(section)))
    start, end = (
        _offset(text, line, column),
        ", " if section.fa.flow_style() else "\n" + column * " ",
    )
    return f"{text[:start]}seeds: {seeds}{end}{text[start:]}"


def _offset(text: str, line: int, column: int) -> int:
    return sum(map(len, text.splitlines(keepends=True)[:line])) + column


def _says(path: Path, params: Params) -> bool:
    with suppress(InputError):
        return load_params(path) == params
    return False
