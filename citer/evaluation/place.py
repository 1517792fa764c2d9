"""Where a policy will serve: in which batches its cost is counted there."""

from citer.config.params import EvaluateParams, ServeParams
from citer.evaluation.cost import Batch, batches


def schedules(serve: ServeParams) -> list[Batch]:
    """Return the ways in which the requests of this place may share forwards."""
    return [batch for batch in batches([serve.batch]) if batch.slots == serve.batch]


def counted(params: EvaluateParams, serve: ServeParams) -> list[Batch]:
    """Return the batches for which points have a cost."""
    return batches([*params.batches, serve.batch])
