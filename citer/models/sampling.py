"""The settings by which one request is sampled, as numbers that travel to the device."""

import hashlib
from collections.abc import Iterable
from struct import pack, unpack
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from citer.config.params import SamplingParams


class Sampling(NamedTuple):
    """Sample from softmax(logits / temperature): of the `top_k` likeliest, the `top_p` mass.

    `seed` decides the noise of all positions (`citer.models.vocabulary`). Temperature 0 is greedy.
    `top_k` 0 and `top_p` 1 keep all tokens.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int

    def numbers(self, position: int) -> tuple[int, ...]:
        """Return the integers of the draw at a position; `perturbed` reads them, floats by bits."""
        return self.seed, position, self.top_k, _bits(self.temperature), _bits(self.top_p)


def noise(sampling: Sampling | None, positions: Iterable[int]) -> list[tuple[int, ...]]:
    """Return `Sampling.numbers` at each position, or nothing if the choice there is greedy."""
    if sampling is None or not sampling.temperature:
        return []
    return [sampling.numbers(position) for position in positions]


class Sampler(NamedTuple):
    """How all questions are decoded: sampled with a seed, or greedily if `params` is None."""

    params: "SamplingParams | None" = None
    seed: int = 0

    def sampling(self, key: str) -> Sampling | None:
        """Return the sampling of a question, or None if it is greedy. No other one changes it."""
        if self.params is None:
            return None
        temperature, top_k, top_p = self.params.temperature, self.params.top_k, self.params.top_p
        own = stable_hash(f"{self.seed} 0 {key}")
        return Sampling(temperature, top_k or 0, top_p or 1.0, own)

    def __str__(self) -> str:
        """Return the settings as the end of a list, or nothing if all questions are greedy."""
        if self.params is None:
            return ""
        settings = self.params.model_dump(exclude_none=True) | {"seed": self.seed}
        return "".join(f", {name} {value}" for name, value in settings.items())


ALL_GREEDY = Sampler()


def stable_hash(key: str) -> int:
    """Hash a text to 63 bits, equal in every process."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1


def _bits(number: float) -> int:
    return unpack("<q", pack("<d", number))[0]
