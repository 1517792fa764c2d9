"""Log a router as an MLflow model (code, bundle, rule), and its finetuned SLM as another.

All router versions that use an SLM share it. The LLM is not stored.
"""

import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from warnings import catch_warnings, simplefilter

import mlflow
from mlflow.entities import LoggedModelStatus
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, Schema

from citer.config.params import Params
from citer.decoding.answer import Counts
from citer.evaluation.choice import upper_bound
from citer.evaluation.measure import Conditions
from citer.rule import Rule
from citer.serving.promise import CARD_KEY, Promise, is_own, path_back
from citer.stages import paths
from citer.storage.tables import digest, read_json, table_metadata, write_json
from flows.tracking.answers import ALONE, Method, read_graded
from flows.tracking.store import Store

# In the current folder. In a worktree this is the code of its commit; this process may run other.
SERVING, CODE = Path("flows/tracking/serving.py"), Path("citer")
KEPT_SLM = "slm"  # the name of a logged model
READY = LoggedModelStatus.READY
CARDED = {"slm", "dtype", "prompt", "chat", "stop"}  # settings of the pair that its card has
UNSERVED = shutil.ignore_patterns(paths.CURVE, paths.HOLDOUT)  # nothing that answers reads them
NEEDED = [
    *("httpx", "math-verify", "numpy", "pandas", "pyarrow", "pydantic", "rich", "ruamel.yaml"),
    *("safetensors", "torch", "transformers"),
]
ANSWER = {"completion": "string", "truncated": "boolean"}  # types of its columns
ANSWER |= dict.fromkeys(Counts._fields, "long") | {"error": "string"}
# A signature cannot describe the input: a frame, or a list of texts and rows.
SIGNATURE = ModelSignature(
    outputs=Schema([ColSpec(kind, name, required=False) for name, kind in ANSWER.items()])
)


def log_router(router: Path, report: Path, slm: str, params: Params) -> None:
    """Log a router with the rule of its report as a model of the active run: code, weights, JSON.

    `slm` is the URI of the finetuned SLM.
    """
    with TemporaryDirectory() as folder, catch_warnings():
        # MLflow warns without an input example; with one it would load the whole pair here.
        simplefilter("ignore", UserWarning)
        bundle = Path(folder) / "bundle"
        assemble(bundle, router, report, slm, params)
        mlflow.pyfunc.log_model(
            name="router",
            python_model=str(SERVING),
            artifacts={"bundle": str(bundle)},
            code_paths=[str(CODE)],
            pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in NEEDED],
            signature=SIGNATURE,
            model_config={
                **params.pair.model_dump(mode="json", exclude=CARDED),
                **params.answer.model_dump(mode="json"),
                # The rule was chosen for answers like these.
                **params.evaluate.model_dump(mode="json", include={"sampling"}),
                "seed": params.seed,
            },
        )


def assemble(bundle: Path, router: Path, report: Path, slm: str, params: Params) -> None:
    """Write `bundle`: the router, and its card with what its server needs besides.

    That is the SLM's URI, and from `report` the chosen rule and its promise.
    """
    shutil.copytree(router, bundle, ignore=UNSERVED)
    own = {
        "threshold": read_json(report / "threshold.json"),
        "serve": read_json(report / paths.DEPLOYED)["serve"],
    }
    card = read_json(bundle / "router.json") | own
    card["slm"]["kept"] = slm
    if promise := promised(report, card["threshold"], params.decode.max_new_tokens):
        card[CARD_KEY] = promise.model_dump()
    write_json(bundle / "router.json", card)


def promised(report: Path, chosen: dict[str, Any], most: int) -> Promise | None:
    """Return the promise of a chosen rule, None if no traffic can break it.

    It is about answers of at most `most` tokens. An accuracy's promise says nothing of answers
    that cannot be graded. They are unlike the LLM's at most as often as not both are right: their
    limit is an upper bound of that on the test questions. A fidelity's promise is of all answers.
    """
    rule, epsilon, delta = Rule(**chosen["rule"]), chosen["epsilon"], chosen["delta"]
    if not chosen["certified"] or is_own(rule):
        return None
    graded, same = None, epsilon
    of = Conditions.stored(table_metadata(report / "outcomes.parquet"))
    if not of.measure.every_question:
        own = Method(report.name, read_json(report / paths.DEPLOYED)["method"], rule)
        routed = read_graded(report / "outcomes.parquet", own)
        llm = read_graded(paths.RIVALS / "outcomes.parquet", ALONE)
        unlike = sum(not (answer.correct and llm[key].correct) for key, answer in routed.items())
        graded, same = epsilon, min(max(epsilon, upper_bound(unlike, len(routed), delta)), 0.99)
    path = [str(each) for each in path_back(rule, read_json(report / "path.json"))]
    limits: dict[str, Any] = {"graded": graded, "same": same, "delta": delta}
    return Promise(path=path, sampling=of.sampling, max_new_tokens=most, **limits)


def keep_slm(store: Store) -> str:
    """Log `data/models/slm` unless the store has an equal one; return the logged model's URI."""
    client, tags = store.client, {"digest": digest(paths.SLM)}
    same = f"name = '{KEPT_SLM}' AND tags.digest = '{tags['digest']}'"
    equal = client.search_logged_models([store.experiment_id], same)
    # A killed call leaves a model that is not ready. Complete it rather than log another.
    kept = next((model for model in equal if model.status == READY), next(iter(equal), None))
    model = kept or client.create_logged_model(store.experiment_id, KEPT_SLM, tags=tags)
    if model.status != READY:
        client.log_model_artifacts(model.model_id, str(paths.SLM))
        client.finalize_logged_model(model.model_id, READY)
    return model.model_uri
