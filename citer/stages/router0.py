"""Write router 0, and train the heads of all later routers that need no preferences.

Router 0 accepts every token of the SLM, so that the first iteration needs no code of its own. The
other heads are trained once. They have their own bundle: the labels depend on router 0, and must
not become stale with these heads.
"""

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.labelling.targets import targets
from citer.models.bundle import write_bundle
from citer.models.device import announce, resolve_device
from citer.models.router import Head, Router
from citer.stages import paths
from citer.stages.folders import finetuned_slm
from citer.storage.tables import digest, replacing, write_json
from citer.training.router import NARROW, Trained, train_head, train_logistic


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
    heads, trained = dict[str, Head](), dict[str, Trained]()
    for name, (target_N, loss) in targets(problems, tokens).items():
        given = features, target_N, problem_N, *settings
        trained[name] = train_head(*given, NARROW, loss)
        heads |= {
            name: trained[name].head,
            f"{name}_logistic": train_logistic(*given, loss),
        }
    made_for = identity | {"prompts": params.prompts.model_dump(mode="json")}
    first = Router({"stand": Head(None), "agree": Head(None)})
    write_bundle(paths.router(0), first, made_for | {"iteration": 0})
    with replacing(paths.COMMON) as aside:
        write_bundle(aside, Router(heads), made_for | {"data": data})
        write_json(aside / "metrics.json", trained["agree"].metrics)
        write_json(aside / paths.CURVE, trained["agree"].curve._asdict())
