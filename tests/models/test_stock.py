"""The stock forward over padded rows and slots, against transformers' forward of one sequence."""

from collections.abc import Sequence
from itertools import chain

import pytest
import torch
from transformers import PreTrainedModel

from citer.models.cache import SlotCache
from citer.models.network import stock_hidden
from tests.networks import CASES, network

# Tokens per row, and how many of their states are wanted: a prefill, a catch-up and a step.
STEPS = [((12, 3, 31), (1, 2, 9)), ((1, 5, 2), (1, 3, 2)), ((1, 1, 1), (1, 1, 1))]


def alone(model: PreTrainedModel, ids: Sequence[int], wanted: int) -> torch.Tensor:
    hidden_1TH = model.base_model(torch.tensor([ids]), use_cache=False).last_hidden_state
    return hidden_1TH[0, -wanted:]


@torch.inference_mode()
@pytest.mark.parametrize("case", CASES)
def test_rows_of_any_length_have_the_states_of_transformers(case: str) -> None:
    model = network(case)
    cache = SlotCache(model, slots=4)
    ids = [[(7 * n + 13 * t) % 64 for t in range(60)] for n in range(3)]
    ends = [0, 0, 0]
    for counts, wanted in STEPS:
        news = [row[end : end + count] for row, end, count in zip(ids, ends, counts, strict=True)]
        batch = cache.begin([2, 0, 3], list(counts), list(wanted))
        found_WH = stock_hidden(model, torch.tensor([*chain.from_iterable(news)]), batch, cache)
        ends = [end + count for end, count in zip(ends, counts, strict=True)]
        rows = zip(ids, ends, wanted, strict=True)
        expected_WH = torch.cat([alone(model, row[:end], last) for row, end, last in rows])
        torch.testing.assert_close(found_WH, expected_WH)
