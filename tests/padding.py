"""Pad rows of token ids for a forward of transformers."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def padded_batch(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Pad on the right: `input_ids` and `attention_mask`, both _BT."""
    ids = [torch.tensor(row) for row in rows]
    masks = [torch.ones_like(row) for row in ids]
    padded = (pad_sequence(each, batch_first=True) for each in (ids, masks))
    return dict(zip(("input_ids", "attention_mask"), padded, strict=True))
