"""What the heads learn that need no preferences.

Co-LLM (arXiv 2403.03870) learns to defer by the likelihood of the references. The next token is
from the LLM with probability φ, else from the SLM. Which of the two wrote a token of a reference is
unknown, so that the loss is the marginal likelihood. In the paper the SLM is trained with the head;
here all methods share one SLM.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from citer.data.problems import Problem
from citer.labelling.preference import token_cases
from citer.training.router import Loss


class Target(NamedTuple):
    """The targets of N tokens, and the loss if they are no labels."""

    target_N: np.ndarray  # or target_N2
    loss: Loss | None = None


def targets(problems: Mapping[str, Problem], tokens: pa.Table) -> dict[str, Target]:
    """Return what each head learns from the tokens of the preference references.

    `agree`: both models choose the same token. Contested tokens are all for the LLM (CITER-S, arXiv
    2502.01976) or all for the SLM.
    """
    slm_N, llm_N = (tokens[f"{name}_token"].to_numpy() for name in ("slm", "llm"))
    case_N = token_cases(problems, tokens)
    logprobs = (tokens[f"{name}_logprob_gt"].to_numpy() for name in ("slm", "llm"))
    return {
        "agree": Target(slm_N == llm_N),
        "contested_llm": Target(~np.isin(case_N, ["llm_right", "contested"])),
        "contested_slm": Target(case_N != "llm_right"),
        "co_llm": Target(np.stack([*logprobs], 1), marginal_loss),
    }


def marginal_loss(logit_B: Tensor, logprob_B2: Tensor) -> Tensor:
    """Return the mean of -log((1 - φ) p_slm(y) + φ p_llm(y)) in nats, with φ = sigmoid(-logit).

    `logprob_B2` has log p_slm(y) and log p_llm(y) of the reference's token y. The score is 1 - φ.
    """
    chosen_B2 = torch.stack([logsigmoid(logit_B), logsigmoid(-logit_B)], 1)
    return -(chosen_B2 + logprob_B2).logsumexp(1).mean()
