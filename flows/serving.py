"""The registered model's code: MLflow runs this file beside a copy of `citer`.

`mlflow.pyfunc.load_model("models:/citer-router@champion").predict(questions)` takes plain
questions or rows in the data files' formats (a list, or a frame with their fields as columns), and
returns a frame with a row for each, in order. A row that cannot be asked has the reason under
`error`. `load_model`'s `model_config` says otherwise where the LLM lies (`llm`) and how to run
(`device`, `cuda_graphs`, `slots`, `max_new_tokens`).

MLflow runs it to log a model, too: `citer`, which brings torch, is imported when one is loaded.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from citer.data.problems import Problem


class RoutedModel(PythonModel):
    """A pair that answers token by token, as its router says."""

    def load_context(self, context: PythonModelContext) -> None:
        """Raises InputError where the models found are not those that the router was made for."""
        from citer.config import PairParams
        from citer.io import read_json
        from citer.serving import deploy, served_pair, stored_rule

        bundle, config = Path(context.artifacts["bundle"]), context.model_config
        card = read_json(bundle / "router.json")
        slm = mlflow.artifacts.download_artifacts(card["slm"]["kept"])  # where it lies, if here
        pair = PairParams(
            slm=slm,
            llm=config["llm"],
            device=config["device"],
            dtype=card["dtype"],
            cuda_graphs=config["cuda_graphs"],
        )
        self.deployment = deploy(
            bundle,
            served_pair(bundle, Path(pair.slm), Path(pair.llm)),
            pair,
            stored_rule(bundle),
            slots=config["slots"],
            max_new_tokens=config["max_new_tokens"],
        )

    # MLflow warns at any hint but a frame's; lists come through as they are.
    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict | None = None
    ) -> pd.DataFrame:
        """A row that cannot be asked is answered by what is wrong with it, under `error`.

        Raises MlflowException alone: of another one MLflow's server would send the traceback.
        """
        try:
            return self._answers(_rows(model_input))
        except Exception as error:
            logging.getLogger(__name__).exception("no question of a call was answered")
            said = f"{type(error).__name__}, of which the server's log tells more"
            raise MlflowException(f"no question of the call was answered: {said}") from error

    def _answers(self, rows: list[Any]) -> pd.DataFrame:
        from citer.serving import REPLY_FIELDS

        asked = [self._problem(row) for row in rows]
        problems = [each for each in asked if not isinstance(each, str)]
        answered = iter(list(self.deployment.replies(problems)))
        answers = [
            {"error": each} if isinstance(each, str) else next(answered).fields for each in asked
        ]
        frame = pd.DataFrame(answers, columns=[*REPLY_FIELDS, "error"], dtype=object)
        return frame.where(frame.notna(), None)

    def _problem(self, row: Any) -> "Problem | str":
        """The problem of a row, or what is wrong with it."""
        from citer.errors import InputError

        try:
            problem = _parse(row)
            self.deployment.check(problem)
        except InputError as error:
            return str(error)
        return problem


def _rows(model_input: Any) -> list[Any]:
    if isinstance(model_input, pd.DataFrame):
        return model_input.astype(object).where(model_input.notna(), None).to_dict("records")
    return np.atleast_1d(np.asarray(model_input, object)).tolist()


def _parse(row: Any) -> "Problem":
    """A plain text is a question without options. What is known of its answer is not looked at."""
    from citer.data.importing import parse_row, task_of
    from citer.data.tasks import TASKS

    if isinstance(row, str):
        row = {next(iter(TASKS.values())).fields[0]: row}
    if isinstance(row, dict):
        # MLflow's server makes an array of each field of a row.
        fields = [field for task in TASKS.values() for field in task.fields]
        row = {f: np.asarray(row[f], object).tolist() for f in fields if f in row}
    return parse_row(row, task_of(row), need="question")


mlflow.models.set_model(RoutedModel())
