"""The rules of the requests that vLLM runs, as tensors: one place for each of vLLM's request slots.

A request keeps its slot, while its row of the batch changes.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from citer.rule import Rule

NEVER = 2**24  # tokens; float32 has every smaller whole number


def most_pending(rule: Rule) -> int:
    """Return after how many drafts a rule calls for the LLM in any case."""
    every = int(rule.at) if rule.visit == "every" else NEVER
    return min(every, rule.cap or NEVER) if rule.asks_slm else 0


class Limits(NamedTuple):
    """What the rules of S slots, or of N rows, say in numbers."""

    score_S: Tensor  # a draft with a lower score is none
    risk_S: Tensor  # drafting ends when the product of the drafts' scores is below it
    pending_S: Tensor  # drafting ends after so many drafts
    scorer_S: Tensor  # place of the rule's scorer
    beta_S: Tensor  # see `citer.vllm.accept`

    def rows(self, slot_N: Tensor) -> "Limits":
        return Limits(*(each_S[slot_N] for each_S in self))


class Rules:
    """The rules of S slots. They are changed on the host; the device gets them when it asks."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self._device = device
        self._host_FS = torch.zeros(len(Limits._fields), slots)
        self._host_FS[-1] = 1  # β
        self._limits: Limits | None = None

    def put(self, slot: int, rule: Rule, scorer: int, most: int) -> None:
        """Set the rule of a slot. `most`: number of drafts that vLLM asks for."""
        pending = min(most, most_pending(rule))
        risk = rule.at if rule.visit == "risk" else 0
        own = (rule.least_score, risk, pending, scorer, rule.audit)
        self._host_FS[:, slot] = torch.tensor(own)
        self._limits = None

    def most(self, slots: NDArray[np.integer]) -> int:
        """Return the largest number of drafts of these slots, without asking the device."""
        return int(self._host_FS[Limits._fields.index("pending_S"), slots].max())

    def relaxed(self, slots: NDArray[np.integer]) -> bool:
        """Return whether an audit of these slots is below 1, without asking the device."""
        return bool((self._host_FS[-1, slots] < 1).any())

    @property
    def limits(self) -> Limits:
        """The rules on the device. A copy is made there after a change."""
        if self._limits is None:
            host_FS = self._host_FS
            if self._device.type == "cuda":
                host_FS = host_FS.pin_memory()
            score_S, risk_S, pending_S, scorer_S, beta_S = host_FS.to(
                self._device, non_blocking=True, copy=True
            )
            self._limits = Limits(score_S, risk_S, pending_S.long(), scorer_S.long(), beta_S)
        return self._limits
