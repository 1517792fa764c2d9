"""The extras of pyproject.toml that commands need. A light installation leaves them out."""

from collections.abc import Sequence
from importlib.util import find_spec

from citer.errors import InputError

# The packages of each extra, by the names under which they are imported.
PIPELINE = (
    "accelerate",
    "altair",
    "cronsim",
    "datasets",
    "deepspeed",
    "dvc",
    "fastapi",
    "jinja2",
    "mlflow",
    "pandas",
    "peft",
    "prefect",
    "psutil",
    "scipy",
    "sklearn",
    "sqlalchemy",
    "trl",
    "vl_convert",
)
SERVE = ("fastapi", "prometheus_client", "uvicorn")


def need_pipeline(command: str) -> None:
    """Raise InputError if a package of the extra `pipeline` is not installed."""
    _need("pipeline", PIPELINE, command)


def need_serve(command: str) -> None:
    """Raise InputError if a package of the extra `serve` is not installed."""
    _need("serve", SERVE, command)


def _need(extra: str, packages: Sequence[str], command: str) -> None:
    if any(find_spec(name) is None for name in packages):
        raise InputError(f"{command} needs the extra \"{extra}\": pip install 'citer[{extra}]'")
