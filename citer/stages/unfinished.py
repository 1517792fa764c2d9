"""Train a head of a router. A killed run goes on where it was."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from citer.config.params import TrainParams
from citer.data.tokens import read_features
from citer.stages import paths
from citer.storage.checkpoint import Checkpoint
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir
from citer.training.router import Trained, train_head


def trained_head(
    stage: str,
    params: TrainParams,
    seed: int,
    device: torch.device,
    data: Mapping[str, str],
    tokens: pa.Table,
    label_N: np.ndarray,
) -> tuple[Trained, Path]:
    """Train a head on labels of `tokens`. Return it with the folder of its checkpoint.

    `data` are the digests of what it is trained on.
    """
    # The device counts, since the state of its generator is kept, too.
    settings = params.model_dump_json(), str(seed), str(device), code_digest(stage)
    partial = partial_dir(stage, digest(*data.values(), *settings))
    features, problem_N = read_features(paths.SLM_TOKENS, tokens), tokens["problem_id"].to_numpy()
    checkpoint = Checkpoint(partial / "state.pt")
    return train_head(features, label_N, problem_N, params, seed, device, checkpoint), partial
