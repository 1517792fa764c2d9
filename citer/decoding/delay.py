"""How many answers should wait before the LLM is run."""


def usual_llm_batch(slots: int) -> int:
    """Half of the slots: near the best where forwards take the time to read their weights.

    It needs no step times, so that a run repeats on every machine.
    """
    return -(-slots // 2)
