"""The forward over tokens laid end to end, against that of transformers."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from citer.errors import InputError
from citer.models.cache import SlotCache
from citer.models.forward import TOLERANCE, check_forward, wanted_hidden
from tests.networks import CASES, network

WINDOWS = [case for case in CASES if "sliding_window" in CASES[case]]


def rows(*lengths: int) -> list[list[int]]:
    return [[(7 * n + 13 * t) % 64 for t in range(length)] for n, length in enumerate(lengths)]


def feed_in(
    model: PreTrainedModel,
    cache: SlotCache,
    slots: list[int],
    news: list[list[int]],
    wanted: list[int] | None = None,
) -> torch.Tensor:
    batch = cache.begin(slots, [len(new) for new in news], wanted or [1] * len(news))
    return wanted_hidden(
        model, torch.tensor([token for new in news for token in new]), batch, cache
    )


def own_hidden(model: PreTrainedModel, ids: list[int], wanted: int = 1) -> torch.Tensor:
    hidden_TH = model.base_model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    return hidden_TH[-wanted:]


@torch.inference_mode()
@pytest.mark.parametrize("case", CASES)
def test_prefill_catch_up_and_step_give_the_states_of_transformers(case: str) -> None:
    model = network(case)
    cache = SlotCache(model, slots=4)
    ids = rows(30, 9, 101, 17)
    ends, slots = [0, 0, 0, 0], [2, 0, 3, 1]
    for counts in ([12, 3, 99, 1], [1, 5, 1, 9], [1, 1, 1, 1]):
        news = [row[end : end + count] for row, end, count in zip(ids, ends, counts, strict=True)]
        hidden_NH = feed_in(model, cache, slots, news)
        ends = [end + count for end, count in zip(ends, counts, strict=True)]
        for row, end, hidden_H in zip(ids, ends, hidden_NH, strict=True):
            torch.testing.assert_close(hidden_H, own_hidden(model, row[:end])[0])


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
@pytest.mark.parametrize("case", WINDOWS)
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


@torch.inference_mode()
@pytest.mark.parametrize("begun", [True, False])
def test_each_row_gives_the_states_of_its_last_wanted_tokens(begun: bool) -> None:
    model = network("qwen2")
    cache = SlotCache(model, slots=3)
    ids, slots, wanted = rows(9, 14, 5), [2, 0, 1], [3, 1, 4]
    if begun:
        feed_in(model, cache, slots, [row[:1] for row in ids])
    news = [row[1:] if begun else row for row in ids]
    hidden_WH = feed_in(model, cache, slots, news, wanted)
    expected = [own_hidden(model, row, count) for row, count in zip(ids, wanted, strict=True)]
    torch.testing.assert_close(hidden_WH, torch.cat(expected))
