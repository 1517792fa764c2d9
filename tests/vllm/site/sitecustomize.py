"""Python imports this at its start: every process of vLLM then has Model Runner V2 on a CPU."""

import benchmarks.interpreter  # noqa: F401
