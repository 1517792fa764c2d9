"""Train and calibrate the heads `stand` and `judge` of router k on the labels of iteration k."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from citer.checkpoint import Checkpoint
from citer.config import Params
from citer.data.tokens import read_features, read_identity
from citer.io import (
    digest,
    read_table,
    remove,
    replacing,
    table_metadata,
    write_json,
    write_table,
)
from citer.labelling.judged import read_judged
from citer.models.bundle import check_identity, read_bundle, stored_prompts, write_bundle
from citer.models.device import resolve_device
from citer.models.router import Router
from citer.schema import HOLDOUT, PREFERENCE
from citer.stages import paths
from citer.stages.unfinished import partial_training
from citer.training import Trained, train_head


def run(params: Params, iteration: int) -> None:
    """Write the bundle, metrics, losses and holdout. A killed run resumes at its last checkpoint.

    Raises InputError if another pair made the labels.
    """
    source = paths.preferences(iteration)
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    labels = read_table(source, PREFERENCE)
    metadata = table_metadata(source)
    check_identity(metadata, identity, source)
    agreement, made_for = read_bundle(paths.AGREE)
    check_identity(made_for, identity, paths.AGREE)
    data = {"preferences": digest(source), "slm_tokens": digest(paths.SLM_TOKENS)}
    if paths.judged(iteration).exists():
        data["judged"] = digest(paths.judged(iteration))
    partial = partial_training("train", params, data)
    trained = train_head(
        read_features(paths.SLM_TOKENS, labels),
        labels["label"].to_numpy(),
        labels["problem_id"].to_numpy(),
        params.train,
        resolve_device(params.pair.device),
        Checkpoint(partial / "state.pt"),
    )
    card = identity | {
        "prompts": stored_prompts(paths.AGREE).model_dump(mode="json"),
        "iteration": iteration,
        "data": data,
        "labels": metadata["labels"],
        "holdout_scores": trained.thresholds,
    }
    judge = _judge(params, iteration, identity, partial)
    heads = {**agreement.heads, "stand": trained.head} | ({"judge": judge.head} if judge else {})
    judges = judge.metrics if judge else {}
    metrics = trained.metrics | {f"judge_{name}": number for name, number in judges.items()}
    with replacing(paths.router(iteration)) as aside:
        write_bundle(aside, Router(heads), card)
        write_json(aside / "metrics.json", metrics)
        write_json(aside / paths.CURVE, trained.curve._asdict())
        write_table(aside / paths.HOLDOUT, _holdout(labels, trained), HOLDOUT, {"data": data})
    remove(partial)
    Console().print(_summary(iteration, trained.metrics), highlight=False, soft_wrap=True)


def _judge(
    params: Params, iteration: int, identity: dict[str, Any], partial: Path
) -> Trained | None:
    """Train the head `judge` if the labels come with its rows (`label.judge`)."""
    source = paths.judged(iteration)
    if not source.exists():
        return None
    check_identity(table_metadata(source), identity, source)
    rows, feature_NF, hidden_size = read_judged(source)
    return train_head(
        feature_NF,
        rows["label"].to_numpy(),
        rows["problem_id"].to_numpy(),
        params.train,
        resolve_device(params.pair.device),
        Checkpoint(partial / "judge.pt"),
        hidden_size,
    )


def _holdout(labels: pa.Table, trained: Trained) -> pa.Table:
    """Return the held-out labels with their calibrated scores."""
    held = labels.select(HOLDOUT.names[:-1]).take(trained.holdout_M)
    return held.append_column(HOLDOUT.field("score"), pa.array(trained.score_M, pa.float32()))


def _summary(iteration: int, metrics: dict[str, float]) -> str:
    loss, constant = metrics["holdout_loss_calibrated"], metrics["holdout_loss_constant"]
    return (
        f"router {iteration}: best after {metrics['best_epoch']} of {metrics['epochs']} epochs; "
        f"holdout loss {loss:.3f} nats, of a constant score {constant:.3f}"
    )
