"""A router on disk: `router.safetensors` and `router.json`, which says whose router it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from citer.data.prompts import TEMPLATE_HASH
from citer.errors import InputError
from citer.io import read_json, replacing, write_json
from citer.models.router import Router, RouterMLP

if TYPE_CHECKING:  # transformers' models take seconds to import
    from citer.models.pair import Pair

VERSION = 1
FEATURE = "SLM hidden state after the final norm"
REQUIRED = ("architecture", "calibration", "slm", "llm", "dtype", "tokenizer", "template")


def identity(pair: "Pair") -> dict[str, Any]:
    """The fields of a card that bind a router to a pair, its precision and its prompts."""
    return {
        "feature": FEATURE,
        "slm": {"id": pair.slm.path.as_posix(), "digest": pair.slm.digest},
        "llm": {"id": pair.llm.path.as_posix(), "digest": pair.llm.digest},
        "dtype": str(pair.slm.dtype).removeprefix("torch."),
        "tokenizer": pair.tokenizer_digest,
        "template": TEMPLATE_HASH,
    }


def write_bundle(folder: Path, router: Router, card: dict[str, Any]) -> None:
    """Write a router with its card: identity, data digests, thresholds (see `identity`)."""
    with replacing(folder) as aside:
        aside.mkdir()
        if router.mlp:
            weights = {
                name: tensor.contiguous() for name, tensor in router.mlp.state_dict().items()
            }
            save_file(weights, aside / "router.safetensors")
        write_json(aside / "router.json", _description(router) | card)


def _description(router: Router) -> dict[str, Any]:
    mlp = router.mlp
    shape = {"hidden_size": mlp.hidden_size, "dropout": mlp.dropout} if mlp else {}
    return {
        "schema_version": VERSION,
        "architecture": {"kind": "mlp" if mlp else "constant", **shape},
        "calibration": {"slope": router.slope, "intercept": router.intercept},
    }


def read_card(folder: Path) -> dict[str, Any]:
    """`router.json`, checked for its version and fields; raises InputError."""
    path = folder / "router.json"
    card = read_json(path)
    if card.get("schema_version") != VERSION:
        raise InputError(f"{path}: schema_version {card.get('schema_version')}, expected {VERSION}")
    for field in REQUIRED:
        if field not in card:
            raise InputError(f"{path}: no field {field!r}, expected a router's card")
    return card


def read_bundle(folder: Path) -> tuple[Router, dict[str, Any]]:
    """A router in evaluation mode, and its card. Raises InputError naming what is wrong."""
    card = read_card(folder)
    kind = card["architecture"].pop("kind")
    mlp = _read_mlp(folder / "router.safetensors", card["architecture"]) if kind == "mlp" else None
    return Router(mlp, **card["calibration"]), card


def _read_mlp(path: Path, shape: dict[str, Any]) -> RouterMLP:
    mlp = RouterMLP(**shape).eval().requires_grad_(False)
    try:
        mlp.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not the weights that router.json describes: {reason}") from None
    return mlp


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
    for field in ("dtype", "tokenizer", "template"):
        if card[field] != ours[field]:
            raise InputError(f"{origin}: its {field} is {card[field]}, here it is {ours[field]}")
