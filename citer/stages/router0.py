"""Write router 0, and train the heads of all later routers that need no preferences.

Router 0 accepts every token of the SLM, so that the first iteration needs no code of its own. The
other heads are trained once. They have their own bundle: the labels depend on router 0, and must
not become stale with these heads.

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

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.labelling.contests import token_cases
from citer.models.bundle import write_bundle
from citer.models.device import resolve_device
from citer.models.router import Head, Router
from citer.stages import paths
from citer.stages.folders import finetuned_slm
from citer.storage.tables import digest, replacing, write_json
from citer.training.router import NARROW, OwnLoss, Trained, train_head, train_logistic


def run(params: Params) -> None:
    """Write both bundles for the pair that scored the tokens, the second with its losses."""
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    problems = {each.problem_id: each for each in read_problems(paths.referenced("preference"))}
    examples = finetuned_slm(params).prompts.encode_all(problems.values())
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
    data = {"slm_tokens": digest(paths.SLM_TOKENS), "llm_tokens": digest(paths.LLM_TOKENS)}
    settings = params.train, params.seed, resolve_device(params.pair.device)
    features, problem_N = read_features(paths.SLM_TOKENS, tokens), tokens["problem_id"].to_numpy()
    heads, trained = dict[str, Head](), dict[str, Trained]()
    for name, (target_N, own) in targets(problems, tokens).items():
        given = features, target_N, problem_N, *settings
        trained[name] = train_head(*given, NARROW, own)
        heads |= {name: trained[name].head, f"{name}_logistic": train_logistic(*given, own)}
    made_for = identity | {"prompts": params.prompts.model_dump(mode="json")}
    first = Router({"stand": Head(None), "agree": Head(None)})
    write_bundle(paths.router(0), first, made_for | {"iteration": 0})
    with replacing(paths.COMMON) as aside:
        write_bundle(aside, Router(heads), made_for | {"data": data})
        write_json(aside / "metrics.json", trained["agree"].metrics)
        write_json(aside / paths.CURVE, trained["agree"].curve._asdict())


class Target(NamedTuple):
    """The targets of N tokens, and how they are learnt if they are no labels."""

    target_N: np.ndarray  # or target_N2
    own: OwnLoss | None = None


def targets(problems: Mapping[str, Problem], tokens: pa.Table) -> dict[str, Target]:
    """Return what each head learns from the tokens of the preference references.

    `agree`: both models choose the same token. Contested tokens are all for the LLM (CITER-S, arXiv
    2502.01976) or all for the SLM. Co-LLM's scores are calibrated by the labels of `contested_slm`;
    in the LLM's own references, where these are all 1, by those of `agree`.
    """
    slm_N, llm_N = (tokens[f"{name}_token"].to_numpy() for name in ("slm", "llm"))
    case_N = token_cases(problems, tokens)
    logprobs = (tokens[f"{name}_logprob_gt"].to_numpy() for name in ("slm", "llm"))
    agrees_N, harmless_N = slm_N == llm_N, case_N != "llm_right"
    calibrating_N = agrees_N if harmless_N.all() else harmless_N
    return {
        "agree": Target(agrees_N),
        "contested_llm": Target(~np.isin(case_N, ["llm_right", "contested"])),
        "contested_slm": Target(harmless_N),
        "co_llm": Target(np.stack([*logprobs], 1), OwnLoss(marginal_loss, calibrating_N)),
    }


def marginal_loss(logit_B: Tensor, logprob_B2: Tensor) -> Tensor:
    """Return the mean of -log((1 - φ) p_slm(y) + φ p_llm(y)) in nats, with φ = sigmoid(-logit).

    `logprob_B2` has log p_slm(y) and log p_llm(y) of the reference's token y. The score is 1 - φ.
    """
    chosen_B2 = torch.stack([logsigmoid(logit_B), logsigmoid(-logit_B)], 1)
    return -(chosen_B2 + logprob_B2).logsumexp(1).mean()
