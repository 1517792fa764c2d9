"""A router on disk: `router.safetensors` and `router.json`, which says whose router it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from citer.data.prompts import TEMPLATE_HASH
from citer.errors import InputError
from citer.io import read_as, read_json, replacing, write_json
from citer.models.features import FEATURE
from citer.models.router import Head, Router, RouterMLP
from citer.rule import Rule

if TYPE_CHECKING:  # transformers' models take seconds to import
    from citer.models.pair import Pair

VERSION = 2


class Closed(BaseModel):
    """Of these keys and no others."""

    model_config = ConfigDict(extra="forbid")


class Shape(Closed):
    hidden_size: int
    dropout: float


class Calibration(Closed):
    slope: float
    intercept: float


class HeadCard(Closed):
    mlp: Shape | None
    calibration: Calibration


class Heads(Closed):
    stand: HeadCard
    agree: HeadCard


class Origin(BaseModel):
    id: str
    digest: str


class Deployed(BaseModel):
    """As registration adds it."""

    rule: Rule


class Card(BaseModel):
    """`router.json`: what must stand in it, and the types of what may."""

    schema_version: Literal[2]
    heads: Heads
    feature: str
    slm: Origin
    llm: Origin
    dtype: str
    tokenizer: str
    template: str
    holdout_scores: dict[float, float] | None = None
    threshold: Deployed | None = None


def identity(pair: "Pair") -> dict[str, Any]:
    """The fields of a card that bind a router to a pair, its precision and its prompts."""
    models = [(model.path, model.digest) for model in (pair.slm, pair.llm)]
    return _identity(models, str(pair.slm.dtype).removeprefix("torch."), pair.tokenizer_digest)


def folder_identity(slm: Path, llm: Path, dtype: str) -> dict[str, Any]:
    """The `identity` that two folders have once they are loaded in `dtype`."""
    from citer.models.folder import model_digest, tokenizer_digest

    models = [(folder, model_digest(folder)) for folder in (slm, llm)]
    return _identity(models, dtype, tokenizer_digest(slm))


def _identity(models: list[tuple[Path, str]], dtype: str, tokenizer: str) -> dict[str, Any]:
    slm, llm = ({"id": folder.as_posix(), "digest": digest} for folder, digest in models)
    return {
        "feature": FEATURE,
        "slm": slm,
        "llm": llm,
        "dtype": dtype,
        "tokenizer": tokenizer,
        "template": TEMPLATE_HASH,
    }


def write_bundle(folder: Path, router: Router, card: dict[str, Any]) -> None:
    """Write a router with its card: identity, data digests, thresholds (see `identity`)."""
    with replacing(folder) as aside:
        aside.mkdir()
        weights = _weights(router)
        if weights:
            save_file(weights, aside / "router.safetensors")
        heads = {name: _described(head) for name, head in router._asdict().items()}
        write_json(aside / "router.json", {"schema_version": VERSION, "heads": heads} | card)


def _weights(router: Router) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": tensor.contiguous()
        for name, head in router._asdict().items()
        if head.mlp
        for key, tensor in head.mlp.state_dict().items()
    }


def _described(head: Head) -> dict[str, Any]:
    mlp = head.mlp
    shape = {"hidden_size": mlp.hidden_size, "dropout": mlp.dropout} if mlp else None
    return {"mlp": shape, "calibration": {"slope": head.slope, "intercept": head.intercept}}


def read_card(folder: Path) -> dict[str, Any]:
    """`router.json`, checked for its version and fields; raises InputError."""
    path = folder / "router.json"
    read_as(path, Card)
    return read_json(path)


def read_bundle(folder: Path) -> tuple[Router, dict[str, Any]]:
    """A router in evaluation mode, and its card. Raises InputError naming what is wrong."""
    card = read_card(folder)
    path, heads = folder / "router.safetensors", card["heads"]
    trained = any(described["mlp"] for described in heads.values())
    try:
        weights = load_file(path) if trained else {}
        return Router(**{name: _read_head(name, heads[name], weights) for name in heads}), card
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not the weights that router.json describes: {reason}") from None


def _read_head(name: str, described: dict[str, Any], weights: dict[str, Tensor]) -> Head:
    if not described["mlp"]:
        return Head(None, **described["calibration"])
    mlp = RouterMLP(**described["mlp"]).eval().requires_grad_(False)
    prefix = f"{name}."
    own = {key.removeprefix(prefix): weights[key] for key in weights if key.startswith(prefix)}
    mlp.load_state_dict(own)
    return Head(mlp, **described["calibration"])


def check_card(card: dict[str, Any], pair: "Pair", origin: Path) -> None:
    """Raise InputError naming the first field by which `card` belongs to another pair."""
    check_identity(card, identity(pair), origin)


def check_identity(card: dict[str, Any], ours: dict[str, Any], origin: Path) -> None:
    """`check_card` against an `identity` that was kept with the data."""
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
