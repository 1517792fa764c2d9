"""Write router 0, and train the `agree` head of all later routers.

Router 0 accepts every token of the SLM, so that the first iteration needs no code of its own. The
`agree` head needs no preferences, so it is trained once. It has its own bundle: the labels depend
on router 0, and must not become stale with this head.
"""

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.models.bundle import write_bundle
from citer.models.device import announce, resolve_device
from citer.models.router import Head, Router
from citer.stages import paths
from citer.stages.folders import finetuned_slm
from citer.storage.tables import digest, replacing, write_json
from citer.training.router import train_head


def run(params: Params) -> None:
    """Write both bundles for the pair that scored the tokens, the second with its losses."""
    announce("router0", params.pair)
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    problems = read_problems(paths.referenced("preference"))
    examples = finetuned_slm(params).prompts.encode_all(problems)
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
    data = {"slm_tokens": digest(paths.SLM_TOKENS), "llm_tokens": digest(paths.LLM_TOKENS)}
    agree_N = tokens["slm_token"].to_numpy() == tokens["llm_token"].to_numpy()
    settings = params.train, params.seed, resolve_device(params.pair.device)
    features, problem_N = read_features(paths.SLM_TOKENS, tokens), tokens["problem_id"].to_numpy()
    trained = train_head(features, agree_N, problem_N, *settings)
    always = Head(None)
    made_for = identity | {"prompts": params.prompts.model_dump(mode="json")}
    first = Router({"stand": always, "agree": always})
    write_bundle(paths.router(0), first, made_for | {"iteration": 0})
    with replacing(paths.AGREE) as aside:
        agreement = Router({"stand": always, "agree": trained.head})
        write_bundle(aside, agreement, made_for | {"data": data})
        write_json(aside / "metrics.json", trained.metrics)
        write_json(aside / paths.CURVE, trained.curve._asdict())
