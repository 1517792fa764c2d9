"""Labels from the audits of answers served earlier."""

from collections.abc import Sequence

import numpy as np

from citer.data.problems import Problem


def audited_labels(
    problem: Problem, reference_ids: Sequence[int], slm_token_N: np.ndarray
) -> dict[int, int]:
    """Return the label of each position where today's SLM writes the audited token.

    `reference_ids` are the tokens of the problem's reference today, and `slm_token_N` what the SLM
    writes at each of their N positions.
    """
    return {
        audit.position: int(audit.kept)
        for audit in problem.audits or ()
        if audit.position < len(reference_ids) and slm_token_N[audit.position] == audit.slm_token
    }
