"""A router's answers to the test questions, from its run's artifacts, and the gate's judgement."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import mlflow
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import requests
from mlflow.entities import Run

from citer.config.params import Params, ServeParams
from citer.errors import InputError
from citer.evaluation.choice import upper_bound
from citer.evaluation.cost import cap, schedules
from citer.evaluation.gate import Answered, Decision, Gate, Graded, GradedAnswers
from citer.evaluation.measure import Conditions
from citer.evaluation.points import rule_columns, rule_of
from citer.rule import LLM, Rule
from citer.stages.paths import DEPLOYED
from citer.storage.schema import OUTCOME
from citer.storage.tables import read_table

COLUMNS = ["split", "method", *rule_columns(LLM), "problem_id", "correct", "bytes"]


class Method(NamedTuple):
    """Where a run keeps the answers of a method, and under which rule it answered."""

    folder: str
    name: str
    rule: Rule


ALONE = Method("rivals", "llm", LLM)


def judge(challenger: Run, champion: Run | None, params: Params, revoked: str = "") -> Decision:
    """Decide whether the challenger replaces the champion, if there is one, by their routers' runs.

    `revoked` says that traffic has revoked the champion's promise.
    """
    settings, register = params.evaluate, params.register_
    gate = Gate(
        margin=register.margin,
        byte_margin=register.byte_margin,
        batch=params.serve.batch,
        delta=settings.delta,
        epsilon=settings.epsilon,
        llm_floor=settings.llm_floor,
        conditions=Conditions.stored(challenger.data.tags),
    )
    own, other = challenger.info.run_id, champion.info.run_id if champion else ""
    return gate.decide(
        _answered(own, deployed(own), params),
        _answered(other, deployed(other), params) if champion else None,
        _answered(own, ALONE, params),
        certified=threshold(own)["certified"],
        champion_conditions=Conditions.stored(champion.data.tags) if champion else None,
        set_aside=revoked or (elsewhere(deployed(other).rule, params.serve) if champion else ""),
    )


def _answered(run_id: str, method: Method, params: Params) -> Answered:
    """Read the answers of a method, with their bytes at a batch size above 1.

    The certificate of a rule is read for the present delta, whatever it was chosen at.
    """
    batched = batched_bytes(run_id, method, params.serve) if params.serve.batch > 1 else None
    bound = risk_bound(threshold(run_id), params.evaluate.delta) if method.rule.asks_slm else 0.0
    return Answered(graded(run_id, method), batched, bound)


def elsewhere(rule: Rule, serve: ServeParams) -> str:
    """Say that a version's rule is that of another place than `serve`; empty if it is not."""
    by_count = serve.engine == "citer" and rule.visit == "every" and rule.cap == rule.at
    if not rule.asks_slm or by_count or rule.cap == cap(serve):
        return ""
    return f"was certified for another place (its rule: `{rule:.4g}`) and is set aside"


def risk_bound(deployed: Mapping[str, Any], delta: float) -> float:
    """Bound the risk of a stored `ChosenRule`, by itself, at confidence 1 - delta.

    It is 0 for the LLM alone and exact rules, and 1 for another rule that is not certified.
    """
    rule = Rule(**deployed["rule"])
    if not rule.asks_slm or rule.exact:
        return 0.0
    if not deployed["certified"]:
        return 1.0
    return upper_bound(deployed["discordant"], deployed["n"], delta)


def threshold(run_id: str) -> dict[str, Any]:
    """Read the deployed rule with its certificate."""
    return mlflow.artifacts.load_dict(f"runs:/{run_id}/report/threshold.json")


def deployed(run_id: str) -> Method:
    """Return the method that is deployed: without a certified rule, the LLM alone."""
    own = mlflow.artifacts.load_dict(f"runs:/{run_id}/report/{DEPLOYED}")
    rule = Rule.parse(own["rule"])
    return Method("report", own["method"], rule) if rule.asks_slm else ALONE


def routed(run_id: str) -> GradedAnswers:
    """Read the answers by the deployed rule."""
    return graded(run_id, deployed(run_id))


def graded(run_id: str, method: Method) -> GradedAnswers:
    with _artifact(run_id, f"{method.folder}/outcomes.parquet") as file:
        return read_graded(file, method)


def read_graded(file: Path, method: Method) -> GradedAnswers:
    """Read a method's answers to the test questions from a table of outcomes."""
    own = (pc.field("split") == "test") & (pc.field("method") == method.name)
    rows = read_table(file, OUTCOME, COLUMNS).filter(own).to_pylist()
    asked = (row for row in rows if rule_of(row) == method.rule)
    return {row["problem_id"]: Graded(row["correct"], row["bytes"]) for row in asked}


def batched_bytes(run_id: str, method: Method, serve: ServeParams) -> float | None:
    """Read a method's bytes per answer where it serves, under the best schedule of its batches.

    Returns None if they were not counted.
    """
    with _artifact(run_id, f"{method.folder}/points.parquet") as file:
        own = (pc.field("task") == "all") & (pc.field("method") == method.name)
        own &= pc.field("split") == "test"
        rows = pq.read_table(file, filters=own).to_pylist()
    row: dict[str, Any] = next((row for row in rows if rule_of(row) == method.rule), {})
    counted = (row.get(f"bytes_per_answer_{batch.name}") for batch in schedules(serve))
    return min((moved for moved in counted if moved is not None), default=None)


def questions(run_id: str, split: str) -> set[str]:
    """Return the ids of the questions of a split, all of which the LLM answered."""
    with _artifact(run_id, "rivals/outcomes.parquet") as file:
        table = read_table(file, OUTCOME, ["split", "problem_id"])
    return set(table.filter(pc.field("split") == split)["problem_id"].to_pylist())


@contextmanager
def _artifact(run_id: str, name: str) -> Iterator[Path]:
    """Yield a copy of a table. Raises InputError if it is damaged, or an earlier citer's."""
    uri = f"runs:/{run_id}/{name}"
    with TemporaryDirectory() as folder:
        try:
            yield Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
        except requests.RequestException:  # an OSError, too; it says nothing of the table
            raise
        except (InputError, pa.ArrowException, OSError) as error:
            raise InputError(f"{uri}: not a table that this citer reads: {error}") from None
