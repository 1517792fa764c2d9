"""The rules of the requests that vLLM runs, as tensors, and a round of drafts by them.

A request keeps its place among vLLM's request slots, while its row of the batch changes. In a round
the SLM writes for all requests until each one's own rule has ended it.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from citer.rule import Rule

NEVER = 2**24  # tokens; float32 has every smaller whole number
LAG = 2  # steps of the SLM between a flag and the wait for it, if ranks must agree


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


class Flag:
    """Whether something has become true on the device, as far as the host knows without waiting.

    If several ranks compute `together`, all must learn it at the same step: they run the same
    collective operations. The host then waits for a flag of `LAG` steps ago.
    """

    def __init__(self, device: torch.device, *, together: bool = False) -> None:
        self._round, self._age, self._together = 0, LAG, together
        self._copied: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._host = torch.zeros((), dtype=torch.long).pin_memory()  # the last true round
            self._copied = torch.cuda.Event()
            self._copied.record()

    def begin(self) -> None:
        """Begin a round, in which it is not true yet."""
        self._round += 1
        self._age = LAG

    def known(self, true: Tensor) -> bool:
        """Return whether an earlier value has arrived that was true. If not, send this one."""
        if self._copied is None:
            return bool(true)
        self._age += 1
        if not (self._age >= LAG if self._together else self._copied.query()):
            return False
        if self._together:
            self._copied.synchronize()
        if int(self._host) == self._round:
            return True
        self._host.copy_(true.long() * self._round, non_blocking=True)
        self._copied.record()
        self._age = 0
        return False


class Round:
    """N requests of a batch for which the SLM drafts, at most `most` tokens each."""

    def __init__(self, own: Limits, most: int, eos_E: Tensor, done: Flag) -> None:
        self.own, self._most, self._eos_E, self._done = own, most, eos_E, done
        self.steps = 0
        self.drafted_N = torch.zeros_like(own.pending_S)  # so far
        self._product_N = torch.ones_like(own.risk_S)
        self._active_N = own.pending_S > 0
        done.begin()

    def take(self, token_N: Tensor, score_NC: Tensor) -> bool:
        """Take the SLM's next tokens and their scores by C scorers. Return whether to go on.

        A token whose score is below the rule's is no draft. Without waiting for the device, it can
        become known a few steps late that all requests have ended.
        """
        self.steps += 1
        own, drafted_N = self.own, self.drafted_N
        score_N = score_NC.gather(1, own.scorer_S[:, None]).squeeze(1).nan_to_num(0.0)
        taken_N = self._active_N & (score_N >= own.score_S)
        drafted_N += taken_N
        self._product_N *= torch.where(taken_N, score_N, 1.0)
        ended_N = (self._product_N < own.risk_S) | (drafted_N >= own.pending_S)
        ended_N |= torch.isin(token_N, self._eos_E)
        self._active_N = taken_N & ~ended_N
        return self.steps < self._most and not self._done.known(~self._active_N.any())
