"""Where a policy will serve: which rules run there, and in which batches their cost is counted."""

from citer.config.params import EvaluateParams, ServeParams
from citer.evaluation.cost import Batch, Schedule, batches


def _shared(serve: ServeParams) -> tuple[Schedule, ...]:
    """Return the schedules of batches. Inside vLLM all requests draft together."""
    return ("delayed", "lockstep") if serve.engine == "vllm" else ("delayed",)


def counted(params: EvaluateParams, serve: ServeParams) -> list[Batch]:
    """Return the batches for which points have a cost."""
    return batches([*params.batches, serve.batch], _shared(serve))


def schedules(serve: ServeParams) -> list[Batch]:
    """Return the ways in which the requests of this place may share forwards."""
    own = [batch for batch in batches([serve.batch], _shared(serve)) if batch.slots == serve.batch]
    return own[-1:] if serve.engine == "vllm" else own


def cap(serve: ServeParams) -> int:
    """Return the cap of the rules that run there, 0 for none."""
    return serve.cap if serve.engine == "vllm" else 0
