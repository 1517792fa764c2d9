"""How many answers should wait before the LLM is run: by step times and the LLM fraction.

Full slots, each draft falling to the LLM with probability `fraction`, make a renewal process: a
cycle begins when no answer waits and ends with the LLM's forward. A cycle's seconds over its
tokens are the seconds of a token; their minimum over `llm_batch` is the best delay.
"""

from collections.abc import Callable
from math import comb

Seconds = Callable[[int], float]  # of a forward, by the number of its rows


def best_llm_batch(slots: int, fraction: float, slm: Seconds, llm: Seconds) -> int:
    """The `llm_batch` with the fewest seconds a token; `fraction` lies in (0, 1]."""
    return min(
        range(1, slots + 1),
        key=lambda llm_batch: seconds_per_token(llm_batch, slots, fraction, slm, llm),
    )


def usual_llm_batch(slots: int) -> int:
    """Half of the slots: near the best where forwards take the time to read their weights.

    It needs no step times, so that a run repeats on every machine.
    """
    return -(-slots // 2)


def seconds_per_token(
    llm_batch: int, slots: int, fraction: float, slm: Seconds, llm: Seconds
) -> float:
    """Expected, with as many answers to come as slots; prefills are left out."""
    reached = [1.0] + [0.0] * slots  # the chance that a cycle comes to have so many waiting
    seconds = tokens = 0.0
    for waiting in range(llm_batch):
        ready = slots - waiting
        falls = [_binomial(ready, count, fraction) for count in range(ready + 1)]
        steps = reached[waiting] / (1 - falls[0])
        seconds += steps * slm(ready)
        tokens += steps * ready
        for count in range(1, ready + 1):
            reached[waiting + count] += steps * falls[count]
    seconds += sum(reached[rows] * llm(rows) for rows in range(llm_batch, slots + 1))
    return seconds / tokens


def _binomial(trials: int, count: int, chance: float) -> float:
    return comb(trials, count) * chance**count * (1 - chance) ** (trials - count)
