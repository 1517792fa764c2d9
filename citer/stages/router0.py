"""Write router 0, and train the heads of all later routers that need no preferences.

Router 0 accepts every token of the SLM, so that the first iteration needs no code of its own. The
other heads are trained once. They have their own bundle: the labels depend on router 0, and must
not become stale with these heads.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.evaluation.rivals.learnt import marginal_loss
from citer.labelling.preference import token_cases
from citer.models.bundle import write_bundle
from citer.models.device import announce, resolve_device
from citer.models.router import Head, Router
from citer.stages import paths
from citer.stages.folders import finetuned_slm
from citer.storage.tables import digest, replacing, write_json
from citer.training.router import NARROW, Loss, train_head, train_logistic


def run(params: Params) -> None:
    """Write both bundles for the pair that scored the tokens, the second with its losses."""
    announce("router0", params.pair)
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    problems = {each.problem_id: each for each in read_problems(paths.referenced("preference"))}
    examples = finetuned_slm(params).prompts.encode_all(problems.values())
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
    data = {"slm_tokens": digest(paths.SLM_TOKENS), "llm_tokens": digest(paths.LLM_TOKENS)}
    settings = params.train, params.seed, resolve_device(params.pair.device)
    features, problem_N = read_features(paths.SLM_TOKENS, tokens), tokens["problem_id"].to_numpy()
    label_N = tokens["slm_token"].to_numpy() == tokens["llm_token"].to_numpy()
    trained = train_head(features, label_N, problem_N, *settings)
    heads = {"stand": Head(None), "agree": trained.head}
    heads["agree_logistic"] = train_logistic(features, label_N, problem_N, *settings)
    for name, (target_N, loss) in _narrow(problems, tokens).items():
        narrow = train_head(features, target_N, problem_N, *settings, NARROW, loss)
        heads[name] = narrow.head
    made_for = identity | {"prompts": params.prompts.model_dump(mode="json")}
    first = Router({"stand": Head(None), "agree": Head(None)})
    write_bundle(paths.router(0), first, made_for | {"iteration": 0})
    with replacing(paths.AGREE) as aside:
        write_bundle(aside, Router(heads), made_for | {"data": data})
        write_json(aside / "metrics.json", trained.metrics)
        write_json(aside / paths.CURVE, trained.curve._asdict())


def _narrow(
    problems: Mapping[str, Problem], tokens: pa.Table
) -> dict[str, tuple[np.ndarray, Loss | None]]:
    """Return the targets of the narrow heads, and the loss if they are no labels.

    Contested tokens are all for the LLM (CITER-S, arXiv 2502.01976) or all for the SLM. Co-LLM
    (arXiv 2403.03870) learns from the likelihood of the reference.
    """
    case_N = token_cases(problems, tokens)
    logprobs = (tokens[f"{name}_logprob_gt"].to_numpy() for name in ("slm", "llm"))
    return {
        "contested_llm": (~np.isin(case_N, ["llm_right", "contested"]), None),
        "contested_slm": (case_N != "llm_right", None),
        "co_llm": (np.stack([*logprobs], 1), marginal_loss),
    }
