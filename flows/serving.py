"""The registered model's code: MLflow runs this file beside a copy of `citer`.

`mlflow.pyfunc.load_model("models:/citer-router@champion").predict(questions)` takes plain
questions or rows in the data files' formats (a list, or a frame with their fields as columns), and
returns a frame with a row for each, in order. `load_model`'s `model_config` says otherwise where
the LLM lies (`llm`) and how to run (`device`, `slots`, `max_new_tokens`).

MLflow runs it to log a model, too: `citer`, which brings torch, is imported when one is loaded.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from citer.data.problems import Problem


class RoutedModel(PythonModel):
    """A pair that answers token by token, as its router says."""

    def load_context(self, context: PythonModelContext) -> None:
        """Raises InputError where the models found are not those that the router was made for."""
        from citer.config import PairParams
        from citer.io import read_json
        from citer.serving import deploy, stored_rule

        bundle, config = Path(context.artifacts["bundle"]), context.model_config
        card = read_json(bundle / "router.json")
        slm = mlflow.artifacts.download_artifacts(card["slm"]["kept"])  # where it lies, if here
        pair = PairParams(slm=slm, llm=config["llm"], device=config["device"], dtype=card["dtype"])
        self.deployment = deploy(
            bundle,
            Path(pair.slm),
            Path(pair.llm),
            pair,
            stored_rule(bundle),
            slots=config["slots"],
            max_new_tokens=config["max_new_tokens"],
        )

    # MLflow warns at any hint but a frame's; lists come through as they are.
    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict | None = None
    ) -> pd.DataFrame:
        """Raises InputError where a row cannot be asked."""
        problems = [_problem(n, row) for n, row in enumerate(_rows(model_input), start=1)]
        return pd.DataFrame([reply.told for reply in self.deployment.replies(problems)])


def _rows(model_input: Any) -> list[Any]:
    if isinstance(model_input, pd.DataFrame):
        return model_input.astype(object).where(model_input.notna(), None).to_dict("records")
    return np.atleast_1d(np.asarray(model_input, object)).tolist()


def _problem(number: int, row: Any) -> "Problem":
    """A plain text is a question without options. What is known of its answer is not looked at."""
    from citer.data.importing import RowError, parse_row, task_of

    if isinstance(row, str):
        row = {"problem": row}
    if isinstance(row, dict):
        # MLflow's server makes an array of each field of a row.
        fields = ("problem", "question", "choices")
        row = {f: np.asarray(row[f], object).tolist() for f in fields if f in row}
    try:
        return parse_row(row, task_of(row), need="question")
    except RowError as error:
        raise error.at(f"row {number}") from None


mlflow.models.set_model(RoutedModel())
