"""Train and calibrate the heads of router k on the labels of iteration k."""

import pyarrow as pa

from citer.config.params import Params
from citer.data.tokens import read_features, read_identity
from citer.models.bundle import check_identity, read_bundle, read_card, write_bundle
from citer.models.device import resolve_device
from citer.models.router import Router
from citer.progress import say
from citer.stages import paths
from citer.storage.schema import HOLDOUT, PREFERENCE
from citer.storage.tables import (
    digest,
    read_table,
    replacing,
    table_metadata,
    write_json,
    write_table,
)
from citer.training.router import NARROW, train_head, train_logistic


def run(params: Params, iteration: int) -> None:
    """Write the bundle, metrics, losses and holdout.

    Raises InputError if another pair made the labels.
    """
    source = paths.preferences(iteration)
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    labels = read_table(source, PREFERENCE)
    metadata = table_metadata(source)
    check_identity(metadata, identity, source)
    common, made_for = read_bundle(paths.COMMON)
    check_identity(made_for, identity, paths.COMMON)
    data = {"preferences": digest(source), "slm_tokens": digest(paths.SLM_TOKENS)}
    label_N, device = labels["label"].to_numpy(), resolve_device(params.pair.device)
    features, problem_N = read_features(paths.SLM_TOKENS, labels), labels["problem_id"].to_numpy()
    examples = features, label_N, problem_N, params.train, params.seed, device
    trained, narrow = train_head(*examples), train_head(*examples, NARROW)
    heads = {"stand": trained.head, "narrow": narrow.head, "logistic": train_logistic(*examples)}
    card = identity | {
        "prompts": read_card(paths.COMMON).prompts.model_dump(mode="json"),
        "iteration": iteration,
        "data": data,
        "labels": metadata["labels"],
    }
    held = labels.select(HOLDOUT.names[:-1]).take(trained.holdout_M)
    held = held.append_column(HOLDOUT.field("score"), pa.array(trained.score_M, pa.float32()))
    with replacing(paths.router(iteration)) as aside:
        write_bundle(aside, Router({**common.heads, **heads}), card)
        write_json(aside / "metrics.json", trained.metrics)
        write_json(aside / paths.CURVE, trained.curve._asdict())
        write_table(aside / paths.HOLDOUT, held, HOLDOUT, {"data": data})
    say(_summary(iteration, trained.metrics))


def _summary(iteration: int, metrics: dict[str, float]) -> str:
    loss, constant = metrics["holdout_loss_calibrated"], metrics["holdout_loss_constant"]
    return (
        f"router {iteration}: best after {metrics['best_epoch']} of {metrics['epochs']} epochs; "
        f"holdout loss {loss:.3f} nats, of a constant score {constant:.3f}"
    )
