"""Run vLLM's Model Runner V2 on a CPU: import this before vLLM.

vLLM's CPU build has V2 only with a Triton backend named "cpu", which no package ships. Triton's
interpreter needs none: it runs each kernel as NumPy. That is slow: it shows counts, not times.
"""

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "1")
import triton.backends
from triton.runtime.interpreter import InterpreterBuilder


class _Driver:
    @staticmethod
    def is_active() -> bool:
        return True


class _Backend:
    driver, compiler = _Driver, None


def _with_boolean_mask(name: str) -> None:
    """The interpreter computes some masks as integers, which its own loads refuse."""
    original, place = getattr(InterpreterBuilder, name), 1 if name.endswith("load") else 2

    def masked(self: Any, *args: Any, **kwargs: Any) -> Any:
        args[place].data = args[place].data.astype(bool)
        return original(self, *args, **kwargs)

    setattr(InterpreterBuilder, name, masked)


triton.backends.backends["cpu"] = _Backend
for name in ("create_masked_load", "create_masked_store"):
    _with_boolean_mask(name)
