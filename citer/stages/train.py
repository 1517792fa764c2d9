"""Train and calibrate the head `stand` of router k on the labels of iteration k."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from rich.console import Console

from citer.config.params import Params, TrainParams
from citer.data.tokens import read_features, read_identity
from citer.models.bundle import check_identity, read_bundle, stored_prompts, write_bundle
from citer.models.device import announce, resolve_device
from citer.models.router import Router
from citer.stages import paths
from citer.stages.unfinished import partial_training
from citer.storage.checkpoint import Checkpoint
from citer.storage.schema import HOLDOUT, PREFERENCE
from citer.storage.tables import (
    digest,
    read_table,
    remove,
    replacing,
    table_metadata,
    write_json,
    write_table,
)
from citer.training.router import Trained, train_head


def run(params: Params, iteration: int) -> None:
    """Write the bundle, metrics, losses and holdout, and the same for further seeds.

    A killed run resumes at its last checkpoint. Raises InputError if another pair made the labels.
    """
    announce(f"train {iteration}", params.pair)
    source = paths.preferences(iteration)
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    labels = read_table(source, PREFERENCE)
    metadata = table_metadata(source)
    check_identity(metadata, identity, source)
    agreement, made_for = read_bundle(paths.AGREE)
    check_identity(made_for, identity, paths.AGREE)
    data = {"preferences": digest(source), "slm_tokens": digest(paths.SLM_TOKENS)}
    card = identity | {
        "prompts": stored_prompts(paths.AGREE).model_dump(mode="json"),
        "iteration": iteration,
        "data": data,
        "labels": metadata["labels"],
    }
    partial = partial_training("train", params, data)
    device = resolve_device(params.pair.device)
    lesson = _Lesson(labels, agreement, card, device, partial)
    with replacing(paths.router(iteration)) as aside:
        metrics = lesson.train(params.train, aside)
    further = params.train.further
    with replacing(paths.seeds(iteration)) as aside:
        for section in further:
            lesson.train(section, aside / str(section.seed))
        seeds = {"router": params.train.seed, "further": [each.seed for each in further]}
        write_json(aside / paths.TRAINED, seeds)
    remove(partial)
    Console().print(_summary(iteration, metrics), highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class _Lesson:
    """What the routers of all seeds have in common."""

    labels: pa.Table
    agreement: Router
    card: Mapping[str, Any]
    device: torch.device
    partial: Path

    @cached_property
    def feature_NF(self) -> np.ndarray:
        return read_features(paths.SLM_TOKENS, self.labels)

    def train(self, section: TrainParams, folder: Path) -> dict[str, float]:
        """Train the router of one seed, write it to `folder`, and return its metrics."""
        trained = train_head(
            self.feature_NF,
            self.labels["label"].to_numpy(),
            self.labels["problem_id"].to_numpy(),
            section,
            self.device,
            Checkpoint(self.partial / f"{section.seed}.pt"),
        )
        card = {**self.card, "holdout_scores": trained.thresholds}
        made_from = {"data": self.card["data"]}
        heads = {**self.agreement.heads, "stand": trained.head}
        write_bundle(folder, Router(heads), card)
        write_json(folder / "metrics.json", trained.metrics)
        write_json(folder / paths.CURVE, trained.curve._asdict())
        write_table(folder / paths.HOLDOUT, _holdout(self.labels, trained), HOLDOUT, made_from)
        return trained.metrics


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
