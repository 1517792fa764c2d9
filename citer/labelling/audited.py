"""Labels from the audits of answers served earlier."""

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from citer.data.problems import Problem


def audited_labels(
    problem: Problem, reference_ids: Sequence[int], slm_token_N: np.ndarray
) -> dict[int, int]:
    """Return the label of each position whose audit still holds: 1 if the SLM's token was kept.

    `reference_ids` are the tokens of the problem's reference today, and `slm_token_N` what the SLM
    writes at each of their N positions. An audit holds if the tokens before its position are those
    of the answer that it checked, and if the SLM writes the token that it judged.
    """
    both = zip(problem.token_ids or (), reference_ids, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    judged = slm_token_N[: same + 1].tolist()
    return {
        audit.position: int(audit.kept)
        for audit in problem.audits or ()
        if audit.position < len(judged) and judged[audit.position] == audit.slm_token
    }
