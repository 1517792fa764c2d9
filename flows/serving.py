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
        dtype = read_json(bundle / "router.json")["dtype"]
        pair = PairParams(
            slm=config["slm"], llm=config["llm"], device=config["device"], dtype=dtype
        )
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
        problems = [_problem(row) for row in _rows(model_input)]
        replies = sorted(self.deployment.replies(problems), key=lambda reply: reply.number)
        return pd.DataFrame([reply.told for reply in replies])


def _rows(model_input: Any) -> list[Any]:
    if isinstance(model_input, pd.DataFrame):
        return model_input.astype(object).where(model_input.notna(), None).to_dict("records")
    return np.atleast_1d(np.asarray(model_input, object)).tolist()


def _problem(row: Any) -> "Problem":
    """A plain text is a question without options."""
    from citer.data.importing import parse_row

    if not isinstance(row, dict):
        return parse_row({"problem": row}, "math", need="question")
    # MLflow's server makes an array of each field of a row.
    fields = {name: np.asarray(value, object).tolist() for name, value in row.items()}
    return parse_row(fields, "math" if fields.get("problem") else "mc", need="question")


mlflow.models.set_model(RoutedModel())
