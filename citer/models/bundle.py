"""A router on disk: `router.safetensors`, and `router.json` with the pair that it belongs to."""

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AliasPath, BaseModel, Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from citer.data.prompts import PromptSettings
from citer.errors import InputError
from citer.models.router import Head, Router, RouterMLP
from citer.rule import Rule
from citer.storage.tables import digest, read_as, read_json, replacing, write_json

VERSION = 3
WIDEST = 2**20  # so that the size of a damaged card still fits a tensor


class Shape(BaseModel):
    """The arguments of `RouterMLP`."""

    hidden_size: Annotated[int, Field(ge=0, le=WIDEST)]
    dropout: Annotated[float, Field(ge=0, lt=1)]
    inputs: Annotated[int, Field(gt=0, le=WIDEST)] | None = None


class HeadCard(BaseModel):
    mlp: Shape | None
    slope: Annotated[float, Field(validation_alias=AliasPath("calibration", "slope"))]
    intercept: Annotated[float, Field(validation_alias=AliasPath("calibration", "intercept"))]


class Origin(BaseModel):
    id: str
    digest: str


class Deployed(BaseModel):
    """The deployed rule, which registration adds."""

    rule: Rule


class Place(BaseModel):
    """Where the deployed rule serves: see `serve` in params.yaml, and `Engine` for `delayed`."""

    engine: Literal["citer", "vllm"] = "citer"
    batch: int = 1
    delayed: bool = True


class Card(BaseModel):
    """The keys of `router.json` that are read. Other keys are allowed."""

    schema_version: Literal[3]
    heads: Annotated[dict[str, HeadCard], Field(min_length=1)]
    weights: str | None = None  # digest of router.safetensors; None if no head has weights
    feature: str
    slm: Origin
    llm: Origin
    dtype: str
    tokenizer: str
    template: str
    prompts: PromptSettings = PromptSettings()
    threshold: Deployed | None = None
    serve: Place = Place()  # registration adds it
    # of the answers that the rule's certificate is about
    sampling: Annotated[str, Field(validation_alias=AliasPath("promise", "sampling"))] = "greedy"


def write_bundle(folder: Path, router: Router, card: dict[str, Any]) -> None:
    """Write a router and its card: `card`, with heads and weights described anew.

    Raises InputError if a weight is not finite.
    """
    # Heads may share an MLP, but safetensors stores no tensor twice: each head gets a copy.
    weights = {
        f"{name}.{key}": tensor.clone(memory_format=torch.contiguous_format)
        for name, head in router.heads.items()
        if head.mlp
        for key, tensor in head.mlp.state_dict().items()
    }
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise InputError(f"{folder}: {name}: a weight is not finite, expected finite weights")
    heads = {name: _described(head) for name, head in router.heads.items()}
    with replacing(folder) as aside:
        aside.mkdir()
        path = aside / "router.safetensors"
        if weights:
            save_file(weights, path)
        made = {"weights": digest(path) if weights else None}
        content = {"schema_version": VERSION, "heads": heads} | made
        content |= {field: value for field, value in card.items() if field not in content}
        write_json(aside / "router.json", content)


def _described(head: Head) -> dict[str, Any]:
    return {
        "mlp": head.mlp and head.mlp.shape,
        "calibration": {"slope": head.slope, "intercept": head.intercept},
    }


def read_card(folder: Path) -> Card:
    """Read `router.json`. Raises InputError if its version or a field is invalid."""
    return read_as(folder / "router.json", Card)


def read_bundle(folder: Path) -> tuple[Router, dict[str, Any]]:
    """Read a router, in evaluation mode, and its card. Raises InputError if either is invalid."""
    described, path = read_card(folder), folder / "router.safetensors"
    try:
        weights = _read_weights(path, described)
        heads = {name: _read_head(name, head, weights) for name, head in described.heads.items()}
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not the weights that router.json describes: {reason}") from None
    return Router(heads), read_json(folder / "router.json")


def _read_weights(path: Path, described: Card) -> dict[str, Tensor]:
    if not any(head.mlp for head in described.heads.values()):
        return {}
    if (actual := digest(path)) != described.weights:
        raise RuntimeError(f"their digest is {actual}, expected {described.weights}")
    # Copies, because `load_file` returns views of the file.
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def _read_head(name: str, described: HeadCard, weights: dict[str, Tensor]) -> Head:
    calibration = described.slope, described.intercept
    if not described.mlp:
        return Head(None, *calibration)
    prefix = f"{name}."
    own = {key.removeprefix(prefix): weights[key] for key in weights if key.startswith(prefix)}
    with torch.device("meta"):  # allocates nothing for a wrong size in the card
        mlp = RouterMLP(**described.mlp.model_dump())
    mlp.load_state_dict(own, assign=True)
    return Head(mlp.float().eval().requires_grad_(False), *calibration)


def check_identity(card: dict[str, Any], ours: dict[str, Any], origin: Path) -> None:
    """Raise InputError with the first field in which `card` differs from the `identity` `ours`."""
    for name in ("slm", "llm"):
        theirs, own = card[name], ours[name]
        if theirs["digest"] != own["digest"]:
            raise InputError(
                f"{origin}: made for the {name.upper()} {theirs['id']} ({theirs['digest']}), "
                f"here it is {own['id']} ({own['digest']})"
            )
    for field in ("feature", "dtype", "tokenizer", "template"):
        if card[field] != ours[field]:
            raise InputError(f"{origin}: its {field} is {card[field]}, here it is {ours[field]}")
