"""The report page that MLflow keeps with the runs of a retraining."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from citer.config.params import Params
from citer.errors import InputError
from citer.report.page import Champion
from citer.report.tokens import read_transcript
from citer.stages.paths import PAGE
from citer.stages.report import write_report_page
from flows.store import CHAMPION


@contextmanager
def report_page(client: MlflowClient, params: Params) -> Iterator[Path]:
    """Yield the page of the retraining in the current folder.

    If the champion's run has its `tokens.json`, the page shows its answers beside the new ones.
    """
    with TemporaryDirectory() as folder:
        page = Path(folder) / PAGE.name
        if champion := _champion(client, params.register_.model_name, folder):
            write_report_page(params, page, champion)
        yield page if champion else PAGE


def _champion(client: MlflowClient, name: str, folder: str) -> Champion | None:
    """Download the champion's tokens. Return None if there are none, or an earlier citer's."""
    with suppress(MlflowException, OSError, InputError):
        version = client.get_model_version_by_alias(name, CHAMPION)
        uri = f"runs:/{version.run_id}/report/tokens.json"
        tokens = Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
        read_transcript(tokens)
        return Champion(f"version {version.version}", tokens)
    return None
