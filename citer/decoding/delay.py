"""When the LLM runs: the schedule that the engine follows and that cost prices."""


def llm_runs(waiting: int, drafting: int, delayed: bool) -> bool:
    """Whether the LLM runs now, where `waiting` answers need it and `drafting` go on without it.

    A delayed LLM waits for half of the answers in flight. That is near the best where forwards
    take the time to read their weights, and needs no step times: a run repeats on every machine.
    """
    return waiting > 0 and (not delayed or waiting >= drafting)
