"""The forwards over tokens laid end to end and over padded rows, against transformers' own."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from citer.errors import InputError
from citer.models.cache import SlotCache
from citer.models.forward import TOLERANCE, check_forward, wanted_hidden
from citer.models.network import stock_hidden
from tests.networks import CASES, network

Forward = Callable[..., torch.Tensor]
WINDOWS = [case for case in CASES if "sliding_window" in CASES[case]]


def rows(*lengths: int) -> list[list[int]]:
    return [[(7 * n + 13 * t) % 64 for t in range(length)] for n, length in enumerate(lengths)]


def feed_in(
    model: PreTrainedModel,
    cache: SlotCache,
    slots: list[int],
    news: list[list[int]],
    wanted: Sequence[int] = (),
    forward: Forward = wanted_hidden,
) -> torch.Tensor:
    batch = cache.begin(slots, [len(new) for new in news], [*wanted] or [1] * len(news))
    return forward(model, torch.tensor([token for new in news for token in new]), batch, cache)


def own_hidden(model: PreTrainedModel, ids: list[int], wanted: int = 1) -> torch.Tensor:
    hidden_TH = model.base_model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    return hidden_TH[-wanted:]


# Tokens per row, and how many of their states are wanted: a prefill, a catch-up and a step.
STEPS = [
    ((12, 3, 99, 1), (1, 2, 9, 1)),
    ((1, 5, 1, 9), (1, 3, 1, 2)),
    ((1, 1, 1, 1), (1, 1, 1, 1)),
]


@torch.inference_mode()
@pytest.mark.parametrize("forward", [wanted_hidden, stock_hidden])
@pytest.mark.parametrize("case", CASES)
def test_prefill_catch_up_and_step_give_the_states_of_transformers(
    case: str, forward: Forward
) -> None:
    model = network(case)
    cache = SlotCache(model, slots=4)
    ids, ends = rows(30, 9, 101, 17), [0, 0, 0, 0]
    for counts, wanted in STEPS:
        news = [row[end : end + count] for row, end, count in zip(ids, ends, counts, strict=True)]
        found_WH = feed_in(model, cache, [2, 0, 3, 1], news, wanted, forward)
        ends = [end + count for end, count in zip(ends, counts, strict=True)]
        begun = zip(ids, ends, wanted, strict=True)
        expected = [own_hidden(model, row[:end], count) for row, end, count in begun]
        torch.testing.assert_close(found_WH, torch.cat(expected))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_the_installed_transformers_computes_the_same_states(case: str, dtype: torch.dtype) -> None:
    check_forward(network(case).to(dtype), Path("m"), wanted_hidden)


def mixed(module: nn.Module, inputs: object, hidden_BTH: torch.Tensor) -> torch.Tensor:
    return hidden_BTH + 0.3 * hidden_BTH.roll(1, -1)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_a_transformers_that_computes_other_states_is_refused_with_its_version(
    case: str, dtype: torch.dtype
) -> None:
    model = network(case).to(dtype)
    # Only transformers' forward calls hooks.
    model.base_model.layers[1].register_forward_hook(mixed)
    with pytest.raises(
        InputError, match=r"^m: transformers 5\.\S+ computes other states than with our cache: "
    ):
        check_forward(model, Path("m"), wanted_hidden)


def test_a_model_with_nan_states_is_refused() -> None:
    model = network("qwen2")
    model.base_model.norm.weight[3] = torch.nan
    with pytest.raises(InputError, match=r"^m: states are not finite in float64"):
        check_forward(model, Path("m"), wanted_hidden)


@torch.inference_mode()
@pytest.mark.parametrize("case", ["qwen2", *WINDOWS])
def test_a_row_that_is_cut_and_one_that_is_pasted_go_on_from_there(case: str) -> None:
    model = network(case)
    cache = SlotCache(model, slots=2)
    (ids,) = rows(40)
    feed_in(model, cache, [0], [ids[:30]])
    copied = cache.copy(0)
    cache.cut(0, 21)  # what a window keeps of 30 positions would not suffice
    cache.paste(1, copied, 24)
    hidden_NH = feed_in(model, cache, [0, 1], [ids[21:25][::-1], ids[24:40]])
    expected = [own_hidden(model, row) for row in (ids[:21] + ids[21:25][::-1], ids)]
    torch.testing.assert_close(hidden_NH, torch.cat(expected))


@torch.inference_mode()
@pytest.mark.parametrize("case", ["qwen2", "mistral, window"])
@pytest.mark.parametrize("slots", [[0, 1, 2], [3, 0, 2]])
def test_rows_of_one_length_need_a_mask_only_beyond_a_window(case: str, slots: list[int]) -> None:
    model = network(case)
    cache = SlotCache(model, slots=4)
    ids = rows(9, 9, 9)
    feed_in(model, cache, slots, [row[:8] for row in ids])
    hidden_NH = feed_in(model, cache, slots, [row[8:] for row in ids])
    for row, hidden_H in zip(ids, hidden_NH, strict=True):
        torch.testing.assert_close(hidden_H, own_hidden(model, row)[0])
