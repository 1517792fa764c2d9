"""Teacher forcing: one parallel forward over given texts instead of a forward per token."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.pair import LanguageModel
from citer.models.vocabulary import Vocabulary

ROWS = 256  # rows of logits held at a time; with a small vocabulary they fit a core's cache


class Text(NamedTuple):
    """The token ids of a text. The ids from `first` on are predicted."""

    ids: Sequence[int]
    first: int


class Predicted(NamedTuple):
    """At most `ROWS` predicted positions of a batch, in the order of its texts."""

    hidden_CH: Tensor
    logits_CV: Tensor
    logprob_CV: Tensor
    given_C: Tensor  # the text's ids at these positions


def predict(
    model: LanguageModel, vocabulary: Vocabulary, texts: Sequence[Text]
) -> Iterator[Predicted]:
    """Run one forward over `texts` and yield the predictions, `ROWS` positions at a time."""
    inputs = padded_batch([list(text.ids[:-1]) for text in texts], model.device)
    hidden_BTH = model.last_hidden(**inputs, use_cache=False)
    parts = zip(hidden_BTH, texts, strict=True)
    hidden_NH = torch.cat([row_TH[first - 1 : len(ids) - 1] for row_TH, (ids, first) in parts])
    given = [token for ids, first in texts for token in ids[first:]]
    given_N = torch.tensor(given, device=model.device)
    for hidden_CH, given_C in zip(hidden_NH.split(ROWS), given_N.split(ROWS), strict=True):
        logits_CV = vocabulary.choices(model.logits(hidden_CH))
        yield Predicted(hidden_CH, logits_CV, logits_CV.log_softmax(-1), given_C)


def padded_batch(rows: list[list[int]], device: torch.device) -> dict[str, Tensor]:
    """Pad rows of token ids on the right: `input_ids` and `attention_mask`, both _BT."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids_BT.to(device), "attention_mask": mask_BT.to(device)}
