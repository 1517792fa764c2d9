"""The extras of pyproject.toml that commands need. A light installation leaves them out."""

from importlib.util import find_spec

from citer.errors import InputError, with_extra

# The packages of each extra, by the names under which they are imported.
EXTRAS = {
    "pipeline": (
        *("accelerate", "altair", "datasets", "deepspeed", "dvc", "fastapi", "jinja2"),
        *("mlflow", "pandas", "peft", "prefect", "psutil", "scipy", "sklearn", "sqlalchemy"),
        *("trl", "vl_convert"),
    ),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
}


def need(extra: str, command: str) -> None:
    """Raise InputError if a package of an extra is not installed."""
    if any(find_spec(name) is None for name in EXTRAS[extra]):
        raise InputError(f'{command} needs the extra "{extra}", {with_extra(extra)}')
