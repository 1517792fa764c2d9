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
from citer.data.problems import read_problems
from citer.data.traffic import TRAFFIC
from citer.errors import InputError
from citer.evaluation.choice import least_questions, upper_bound
from citer.evaluation.cost import cap, schedules
from citer.evaluation.gate import Answered, Decision, Gate, Graded, GradedAnswers
from citer.evaluation.measure import Conditions
from citer.evaluation.points import rule_columns, rule_of
from citer.rule import LLM, Rule
from citer.serving.evidence import Evidence, evidence_place, is_there
from citer.serving.status import standing_of
from citer.stages import paths
from citer.storage.schema import OUTCOME
from citer.storage.tables import read_table
from flows.tracking.store import home

UNSEEN = (
    "{seen} validation questions come from traffic, too few for a promise about it, expected at "
    "least {enough}; let prepare.traffic and prepare.shares.validation bring more, with right "
    "answers or with evaluate.against: llm, or run `citer promote VERSION`"
)
COLUMNS = ["split", "method", *rule_columns(LLM), "problem_id", "correct", "bytes"]


class Method(NamedTuple):
    """Where a run keeps the answers of a method, and under which rule it answered."""

    folder: str
    name: str
    rule: Rule


ALONE = Method("rivals", "llm", LLM)


def judge(challenger: Run, champion: Run | None, params: Params, version: str) -> Decision:
    """Decide whether the router in the current folder replaces the champion, if there is one.

    The runs are those of their routers, `version` is the champion's NAME/VERSION. A champion whose
    promise traffic has broken answers by a safe rule. Only a promise that is about traffic, too,
    takes its place, or an exact rule, which needs none.
    """
    own, other = challenger.info.run_id, champion.info.run_id if champion else ""
    revoked, method = _revoked(version) if champion else "", deployed(own)
    decision = _gate(params, Conditions.stored(challenger.data.tags)).decide(
        _answered(own, method, params),
        _answered(other, deployed(other), params) if champion else None,
        _answered(own, ALONE, params),
        certified=threshold(own)["certified"],
        champion_conditions=Conditions.stored(champion.data.tags) if champion else None,
        set_aside=revoked or (elsewhere(deployed(other).rule, params.serve) if champion else ""),
    )
    if not (revoked and decision.promote) or method.rule.exact or not (unseen := _unseen(params)):
        return decision
    return Decision(False, f"the champion {revoked}; {unseen}")


def _gate(params: Params, conditions: Conditions) -> Gate:
    return Gate(
        margin=params.register_.margin,
        byte_margin=params.register_.byte_margin,
        batch=params.serve.batch,
        delta=params.evaluate.delta,
        epsilon=params.evaluate.epsilon,
        llm_floor=params.evaluate.llm_floor,
        conditions=conditions,
    )


def _unseen(params: Params) -> str:
    """Say that validation has too few questions of traffic for a promise about it; else empty."""
    seen = sum(each.source == TRAFFIC for each in read_problems(paths.referenced("validation")))
    enough = least_questions(params.evaluate.epsilon, params.evaluate.delta)
    return UNSEEN.format(seen=seen, enough=enough) if seen < enough else ""


def _revoked(version: str) -> str:
    """Say that servers have revoked a version's promise; empty if they have not.

    Raises InputError if their evidence about it is damaged.
    """
    place = evidence_place(home() / paths.EVIDENCE.name)
    if not is_there(place) or version not in (evidence := Evidence(place)).promises():
        return ""
    standing = standing_of(evidence, version)
    if not standing.place:
        return ""
    return f"has a promise that traffic revoked (`{standing.rule}` is in force) and is set aside"


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
    own = mlflow.artifacts.load_dict(f"runs:/{run_id}/report/{paths.DEPLOYED}")
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
