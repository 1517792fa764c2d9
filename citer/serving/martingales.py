"""Evidence about a risk that may be looked at after every answer.

A loss x is 1 or 0. It bets against "the risk of this answer is at most ε": for an alternative risk
q > ε, the factor is q/ε if the answer was lost, else (1-q)/(1-ε). Its mean is at most 1 while the
risk is at most ε, whatever happened before. So the product of factors is a test supermartingale,
and it exceeds 1/δ with probability at most δ, ever (Ville, 1939; betting: Waudby-Smith and Ramdas,
arXiv 2010.09686). With q < ε the same factor bets against "the risk is at least ε".

`Product` starts at the first answer. It carries its good past along, and sees a later change late.
`Detector` is the Shiryaev-Roberts sum of products that start at each answer, an e-detector (Shin,
Ramdas and Rinaldo, arXiv 2203.03532). It sees a change soon, and exceeds A after a mean of at least
A answers if the risk never exceeds ε. Both are means over several alternatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

WORSE = (1.25, 1.5, 2.0, 3.0, 5.0)  # times ε: alternatives that bet against "at most ε"
BETTER = (0.0, 0.25, 0.5, 0.75)  # ... and against "at least ε"


def factors(lost: bool, limit: float, multiples: Sequence[float]) -> np.ndarray:
    """Return the factor of each alternative, at most half way from the limit to certain loss."""
    risk = np.minimum(np.array(multiples) * limit, (1 + limit) / 2)
    return risk / limit if lost else (1 - risk) / (1 - limit)


@dataclass
class Product:
    """The e-process: evidence since the first answer, against "at most the limit" by `WORSE`."""

    multiples: Sequence[float] = WORSE
    logs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.logs = np.zeros(len(self.multiples))

    def take(self, lost: bool, limit: float) -> None:
        with np.errstate(divide="ignore"):  # a loss refutes the alternative 0
            self.logs += np.log(factors(lost, limit, self.multiples))

    @property
    def value(self) -> float:
        """The e-value, at most e^700."""
        return float(np.exp(np.minimum(self.logs, 700.0)).mean())


@dataclass
class Detector:
    """The e-detector: evidence that the risk has exceeded the limit since some answer."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(len(WORSE)))

    def take(self, lost: bool, limit: float) -> None:
        self.sums = np.minimum((self.sums + 1) * factors(lost, limit, WORSE), 1e300)

    @property
    def value(self) -> float:
        return float(self.sums.mean())
