"""The code of a registered model. MLflow runs this file with a copy of `citer`.

`mlflow.pyfunc.load_model("models:/citer-router@champion").predict(questions)` takes plain
questions, or rows in the formats of the data files, as a list or a frame. `load_model`'s
`model_config` can override what `load_context` reads of it.

MLflow also runs this file to log a model. What imports torch is therefore only imported when a
model is loaded.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel, PythonModelContext
from mlflow.utils.uri import is_local_uri

from citer.config.params import DecodeParams, PairParams, SamplingParams
from citer.data.importing import parse_question
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.errors import InputError
from citer.storage.tables import read_json


class RoutedModel(PythonModel):
    """A pair of models that answers questions, routed by a registered router and its rule."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the pair. Raises InputError if the router was made for other models."""
        from citer.models.sampling import Sampler
        from citer.serving.deployment import deploy, served_pair, stored_rule

        bundle, config = Path(context.artifacts["bundle"]), context.model_config
        card = read_json(bundle / "router.json")
        own = {name: config[name] for name in PairParams.model_fields if name in config}
        limits = DecodeParams(slots=config["slots"], max_new_tokens=config["max_new_tokens"])
        with _kept(card["slm"]["kept"]) as slm:
            pair = PairParams(**own | {"slm": slm, "dtype": card["dtype"]})
            folders = served_pair(bundle, pair, Path(slm))
            self.deployment = deploy(bundle, folders, pair, stored_rule(bundle), limits)
        sampling = config["sampling"]
        self.sampler = Sampler(sampling and SamplingParams(**sampling), config["seed"])

    # MLflow warns at any other type hint than a frame's. Lists arrive unchanged.
    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict | None = None
    ) -> pd.DataFrame:
        """Answer each row. The column `error` says why a row was refused.

        Raises only MlflowException: for any other exception MLflow's server would send the
        traceback to the client.
        """
        try:
            return self._answers(_rows(model_input))
        except Exception as error:
            logging.getLogger(__name__).exception("the call failed, no question was answered")
            reason = f"{type(error).__name__}, see the server's log"
            raise MlflowException(f"the call failed, no question was answered: {reason}") from error

    def _answers(self, rows: list[Any]) -> pd.DataFrame:
        from citer.serving.deployment import REPLY_FIELDS

        parsed = [self._problem(row) for row in rows]
        problems = [each for each in parsed if not isinstance(each, str)]
        replies = iter(list(self.deployment.replies(problems, sampler=self.sampler)))
        answers = [
            {"error": each} if isinstance(each, str) else next(replies).fields for each in parsed
        ]
        frame = pd.DataFrame(answers, columns=[*REPLY_FIELDS, "error"], dtype=object)
        return frame.where(frame.notna(), None)

    def _problem(self, row: Any) -> Problem | str:
        """Return the row's problem, or the reason why it is refused."""
        try:
            problem = _parse(row, self.deployment.tasks)
            self.deployment.check(problem)
        except InputError as error:
            return str(error)
        return problem


@contextmanager
def _kept(uri: str) -> Iterator[str]:
    """Yield the folder of a stored SLM: its own on this machine, else a copy that is removed."""
    location = MlflowClient().get_logged_model(uri.removeprefix("models:/")).artifact_location
    with TemporaryDirectory() as folder:
        copied_to = None if is_local_uri(location) else folder
        yield mlflow.artifacts.download_artifacts(uri, dst_path=copied_to)


def _rows(model_input: Any) -> list[Any]:
    if isinstance(model_input, pd.DataFrame):
        return model_input.astype(object).where(model_input.notna(), None).to_dict("records")
    return np.atleast_1d(np.asarray(model_input, object)).tolist()


def _parse(row: Any, tasks: Sequence[str]) -> Problem:
    """Parse a row. Text alone is a question of the router's first task, without options."""
    if isinstance(row, str) and (fields := find_task(tasks[0]).fields):
        row = {fields[0]: row}
    if isinstance(row, dict):
        # MLflow's server turns each field of a row into an array.
        row = {field: np.asarray(value, object).tolist() for field, value in row.items()}
    return parse_question(row, tasks)


mlflow.models.set_model(RoutedModel())
