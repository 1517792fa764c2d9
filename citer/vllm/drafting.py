"""One round of drafts: the SLM writes for all requests until each one's own rule has ended it."""

import torch
from torch import Tensor

from citer.vllm.rules import Limits

LAG = 2  # steps of the SLM between a flag and the wait for it, if ranks must agree


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
