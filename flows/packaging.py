"""Log a router as an MLflow model: code, bundle and rule. The two models are stored elsewhere."""

import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from warnings import catch_warnings, simplefilter

import mlflow
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, Schema

import citer
from citer.config import Params
from citer.decoding.answer import Counts
from citer.io import read_json, write_json

SERVING = Path(__file__).with_name("serving.py")
CODE = Path(citer.__file__).parent
NEEDED = (
    "httpx",
    "math-verify",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "rich",
    "ruamel.yaml",
    "safetensors",
    "torch",
    "transformers",
)
# A signature cannot describe the input: a frame, or a list of texts and rows.
SIGNATURE = ModelSignature(
    outputs=Schema(
        [
            ColSpec("string", "completion", required=False),
            ColSpec("boolean", "truncated", required=False),
            *(ColSpec("long", name, required=False) for name in Counts._fields),
            ColSpec("string", "error", required=False),
        ]
    )
)


def log_router(router: Path, threshold: Path, slm: str, params: Params) -> None:
    """Log a router with its rule as a model of the active run: code, safetensors and JSON.

    `slm` is the URI of the finetuned SLM, which `flows.slm` logs separately.
    """
    with TemporaryDirectory() as folder, catch_warnings():
        # MLflow warns without an input example; with one it would load the whole pair here.
        simplefilter("ignore", UserWarning)
        bundle = Path(folder) / "bundle"
        assemble(bundle, router, threshold, slm)
        mlflow.pyfunc.log_model(
            name="router",
            python_model=str(SERVING),
            artifacts={"bundle": str(bundle)},
            code_paths=[str(CODE)],
            pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in NEEDED],
            signature=SIGNATURE,
            model_config={
                "llm": params.pair.llm,
                "llm_url": params.pair.llm_url,
                "device": params.pair.device,
                "cuda_graphs": params.pair.cuda_graphs,
                "llm_device_map": params.pair.llm_device_map,
                "slots": params.evaluate.slots,
                "max_new_tokens": params.evaluate.max_new_tokens,
                # The rule was chosen for answers like these.
                **params.evaluate.model_dump(mode="json", include={"sampling", "seed"}),
            },
        )


def assemble(bundle: Path, router: Path, threshold: Path, slm: str) -> None:
    """Write `bundle`: the router, and its card with the chosen rule and the SLM's URI."""
    shutil.copytree(router, bundle)
    card = read_json(bundle / "router.json") | {"threshold": read_json(threshold)}
    card["slm"]["kept"] = slm
    write_json(bundle / "router.json", card)
