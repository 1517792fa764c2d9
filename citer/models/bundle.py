"""A router on disk: `router.safetensors`, and `router.json` with the pair that it belongs to."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from citer.data.prompts import PromptSettings
from citer.errors import InputError
from citer.models.router import FEATURE, Head, Router, RouterMLP
from citer.rule import EXPECTED, Rule
from citer.sections import Share, complaint
from citer.storage.tables import digest, read_as, read_json, replacing, write_json

if TYPE_CHECKING:  # transformers' models take seconds to import
    from citer.models.folder import ModelCard, ModelFolder, PairFolder
    from citer.models.pair import Pair

VERSION = 3
LARGEST = 2**16  # hidden size, four times that of the largest models
STEEPEST = 1e6  # slope or intercept of a calibration, far beyond any fitted one

Weight = Annotated[float, Field(ge=-STEEPEST, le=STEEPEST)]


def _in_range(rule: Rule) -> Rule:
    if not rule.in_range:
        raise ValueError(f"'{rule}': {EXPECTED}")
    return rule


def _identifier(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r}: expected letters, digits and `_`, and no digit first")
    return name


HeadName = Annotated[str, AfterValidator(_identifier)]


class Closed(BaseModel):
    """A section that allows no other keys."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Shape(Closed):
    hidden_size: Annotated[int, Field(ge=0, le=LARGEST)]
    dropout: Annotated[float, Field(ge=0, lt=1)]
    inputs: Annotated[int, Field(gt=0, le=2 * LARGEST)] | None = None  # None: `FEATURE`


class Calibration(Closed):
    slope: Weight
    intercept: Weight


class HeadCard(Closed):
    mlp: Shape | None
    calibration: Calibration


class Origin(BaseModel):
    id: str
    digest: str


class Deployed(BaseModel):
    """The deployed rule, which registration adds."""

    rule: Annotated[Rule, AfterValidator(_in_range)]
    epsilon: Share | None = None
    delta: Share | None = None


class Place(BaseModel):
    """Where the deployed rule serves: see `serve` in params.yaml, and `Engine` for `delayed`."""

    engine: Literal["citer", "vllm"] = "citer"
    batch: int = 1
    delayed: bool = True


class Labels(BaseModel):
    """How the labels of a router were made: see `label.method`, and the glossary for `margin`.

    `references`: given, llm, both or audited. `outcome`: rollout or suffix. Several are sorted and
    joined by "+".
    """

    references: str
    outcome: str
    margin: float | None = None  # nats; None without `suffix`


class Card(BaseModel):
    """The keys of `router.json` that are read. Other keys are allowed."""

    schema_version: Literal[3]
    heads: Annotated[dict[HeadName, HeadCard], Field(min_length=1)]
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
    labels: Labels | None = None  # None: no labels, as for router 0


def identity(pair: "Pair") -> dict[str, Any]:
    """Return the fields of a card that bind a router to a pair, its precision and its prompts."""
    cards = (pair.slm.card, pair.llm.card)
    return _identity(cards, pair, str(pair.slm.dtype).removeprefix("torch."))


def folder_identity(folders: "PairFolder", dtype: str) -> dict[str, Any]:
    """Return the `identity` that the pair in `folders` would have after loading in `dtype`."""
    return _identity((folders.slm, folders.llm), folders, dtype)


def _identity(
    models: Iterable["ModelCard | ModelFolder"], pair: "Pair | PairFolder", dtype: str
) -> dict[str, Any]:
    slm, llm = ({"id": model.path.as_posix(), "digest": model.digest} for model in models)
    return {
        "feature": FEATURE,
        "slm": slm,
        "llm": llm,
        "dtype": dtype,
        "tokenizer": pair.tokenizer_digest,
        "template": pair.prompts.digest,
    }


def write_bundle(folder: Path, router: Router, card: dict[str, Any]) -> None:
    """Write a router and its card: `card`, with heads and weights described anew.

    Raises InputError if `read_bundle` would refuse the result.
    """
    weights = _weights(router)
    _check_finite(weights, folder)
    heads = {name: _described(head) for name, head in router.heads.items()}
    with replacing(folder) as aside:
        aside.mkdir()
        path = aside / "router.safetensors"
        if weights:
            save_file(weights, path)
        made = {"weights": digest(path) if weights else None}
        content = {"schema_version": VERSION, "heads": heads} | made
        content |= {field: value for field, value in card.items() if field not in content}
        try:
            Card.model_validate(content)
        except ValidationError as error:
            reason = complaint(error)
            raise InputError(f"{folder}: not a router that can be used: {reason}") from None
        write_json(aside / "router.json", content)


def _check_finite(weights: dict[str, Tensor], origin: Path) -> None:
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise InputError(f"{origin}: {name}: a weight is not finite, expected finite weights")


def _weights(router: Router) -> dict[str, Tensor]:
    # Heads may share an MLP, but safetensors stores no tensor twice: each head gets a copy.
    return {
        f"{name}.{key}": tensor.clone(memory_format=torch.contiguous_format)
        for name, head in router.heads.items()
        if head.mlp
        for key, tensor in head.mlp.state_dict().items()
    }


def _described(head: Head) -> dict[str, Any]:
    return {
        "mlp": head.mlp and head.mlp.shape,
        "calibration": {"slope": head.slope, "intercept": head.intercept},
    }


def read_card(folder: Path) -> dict[str, Any]:
    """Read `router.json`. Raises InputError if its version or a field is invalid."""
    path = folder / "router.json"
    read_as(path, Card)
    return read_json(path)


def stored_prompts(folder: Path) -> PromptSettings:
    """Return the settings of the prompts that a router was trained on. Raises InputError."""
    return Card.model_validate(read_card(folder)).prompts


def read_bundle(folder: Path) -> tuple[Router, dict[str, Any]]:
    """Read a router, in evaluation mode, and its card. Raises InputError if either is invalid."""
    card = read_card(folder)
    described, path = Card.model_validate(card), folder / "router.safetensors"
    try:
        weights = _read_weights(path, described)
        heads = {name: _read_head(name, head, weights) for name, head in described.heads.items()}
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not the weights that router.json describes: {reason}") from None
    return Router(heads), card


def _read_weights(path: Path, described: Card) -> dict[str, Tensor]:
    if not any(head.mlp for head in described.heads.values()):
        return {}
    if (actual := digest(path)) != described.weights:
        raise RuntimeError(f"their digest is {actual}, expected {described.weights}")
    # Copies, because `load_file` returns views of the file.
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    _check_finite(weights, path)
    return weights


def _read_head(name: str, described: HeadCard, weights: dict[str, Tensor]) -> Head:
    calibration = described.calibration.model_dump()
    if not described.mlp:
        return Head(None, **calibration)
    prefix = f"{name}."
    own = {key.removeprefix(prefix): weights[key] for key in weights if key.startswith(prefix)}
    with torch.device("meta"):  # allocates nothing for a wrong size in the card
        mlp = RouterMLP(**described.mlp.model_dump())
    mlp.load_state_dict(own, assign=True)
    return Head(mlp.float().eval().requires_grad_(False), **calibration)


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
