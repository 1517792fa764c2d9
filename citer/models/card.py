"""The card of a model: its facts without its weights."""

from pathlib import Path
from typing import NamedTuple, Protocol


class ModelCard(NamedTuple):
    """A model's sizes, its limits and its identity.

    weight_bytes: bytes of weights that one forward reads
    kv_bytes: bytes of keys and values that one position occupies
    context: largest number of positions of a sequence
    vocab_size: number of ids that the model has logits for, padding included
    path: the model's folder, by which error messages name it
    digest: of its configuration and weights
    """

    weight_bytes: int
    kv_bytes: int
    context: int
    vocab_size: int
    path: Path
    digest: str


class Carded(Protocol):
    """A model that has a card: loaded in this process, or elsewhere."""

    @property
    def card(self) -> ModelCard: ...
