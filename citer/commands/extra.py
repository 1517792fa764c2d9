"""The extra `pipeline` of pyproject.toml, which a light installation leaves out."""

from importlib.util import find_spec

from citer.errors import InputError

# The packages of the extra, by the names under which they are imported.
PIPELINE = (
    "accelerate",
    "datasets",
    "deepspeed",
    "dvc",
    "fastapi",
    "matplotlib",
    "mlflow",
    "pandas",
    "peft",
    "prefect",
    "psutil",
    "scipy",
    "sklearn",
    "sqlalchemy",
    "trl",
)


def need_pipeline(command: str) -> None:
    """Raise InputError if a package of the extra `pipeline` is not installed."""
    if any(find_spec(name) is None for name in PIPELINE):
        raise InputError(f"{command} needs the extra \"pipeline\": pip install 'citer[pipeline]'")
