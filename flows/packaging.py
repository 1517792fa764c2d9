"""A router made deployable: one folder with all that it needs but the LLM, logged with MLflow."""

import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from warnings import catch_warnings, simplefilter

import mlflow
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, Schema
from ruamel.yaml import YAML

import citer
from citer.config import Params
from citer.decoding.answer import Counts
from citer.io import read_json, write_json
from citer.stages.paths import SLM
from flows.dvc import LOCK

SERVING = Path(__file__).with_name("serving.py")
CODE = Path(citer.__file__).parent
NEEDED = (
    "math-verify",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "ruamel.yaml",
    "safetensors",
    "torch",
    "transformers",
)
# What goes in is a frame or a list, and cannot be said in a signature.
SIGNATURE = ModelSignature(
    outputs=Schema(
        [
            ColSpec("string", "completion"),
            ColSpec("boolean", "truncated"),
            *(ColSpec("long", name) for name in Counts._fields),
        ]
    )
)


def log_router(router: Path, threshold: Path, params: Params) -> None:
    """Log a router with its rule as a model of the active run: code, safetensors and JSON."""
    with TemporaryDirectory() as folder, catch_warnings():
        # MLflow asks for an example; it would load the whole pair here to answer it.
        simplefilter("ignore", UserWarning)
        bundle = Path(folder) / "bundle"
        assemble(bundle, router, threshold, params.register_.slm_limit_mb)
        mlflow.pyfunc.log_model(
            name="router",
            python_model=str(SERVING),
            artifacts={"bundle": str(bundle)},
            code_paths=[str(CODE)],
            pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in NEEDED],
            signature=SIGNATURE,
            model_config={
                "slm": SLM.as_posix(),  # read where the bundle carries none
                "llm": params.pair.llm,
                "device": params.pair.device,
                "cuda_graphs": params.pair.cuda_graphs,
                "slots": params.evaluate.slots,
                "max_new_tokens": params.evaluate.max_new_tokens,
            },
        )


def assemble(bundle: Path, router: Path, threshold: Path, slm_limit_mb: int) -> None:
    """Write `bundle`: the router, its card with the threshold, and the finetuned SLM.

    An SLM above the limit stays in DVC's remote; the card keeps its digest there.
    """
    shutil.copytree(router, bundle)
    card = read_json(bundle / "router.json") | {"threshold": read_json(threshold)}
    if sum(file.stat().st_size for file in SLM.rglob("*")) <= slm_limit_mb * 1_000_000:
        shutil.copytree(SLM, bundle / "slm")
    else:
        card["slm"] |= {"path": SLM.as_posix(), "dvc_md5": _dvc_md5(SLM)}
    write_json(bundle / "router.json", card)


def _dvc_md5(path: Path) -> str:
    """The digest under which DVC keeps an out of the pipeline."""
    stages = YAML(typ="safe", pure=True).load(LOCK.read_text())["stages"]
    outs = (out for stage in stages.values() for out in stage.get("outs", ()))
    return next(out["md5"] for out in outs if out["path"] == path.as_posix())
