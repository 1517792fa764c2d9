"""The schedule of the LLM, for the engine and for the cost model."""


def llm_runs(waiting: int, drafting: int, delayed: bool) -> bool:
    """Return whether the LLM runs now. `waiting` sequences need it, `drafting` ones do not.

    A delayed LLM runs when half of the sequences in flight wait for it. This is near the optimum if
    a forward takes as long as reading its weights. The schedule depends on no measured time, so
    that runs are reproducible.
    """
    return waiting > 0 and (not delayed or waiting >= drafting)
