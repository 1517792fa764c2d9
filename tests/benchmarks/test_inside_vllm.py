"""Figures relative to vLLM alone."""

from benchmarks.vllm import compared


def test_figures_are_relative_to_the_llm_alone_in_the_same_turn() -> None:
    alone = {"answers": [[1], [2]], "processor": 4.0, "seconds": 8.0}
    run = {"answers": [[1], [3]], "processor": 1.0, "seconds": 6.0}
    shares = {"identical": 1, "processor": 0.25, "seconds": 0.75}
    assert compared(run, alone) == run | shares
