"""The slot cache against the cache of transformers."""

from itertools import count

import pytest
import torch
from transformers import DynamicCache

from citer.decoding.runner import ModelRunner
from citer.models.cache import Row, SlotCache
from citer.models.pair import Pair
from tests.decoding.reference import next_hidden


def feed(
    runner: ModelRunner, slots: list[int], ids: list[list[int]], wanted: list[int] | None = None
) -> torch.Tensor:
    """Return hidden_WH of the last `wanted` tokens of each row, or of the last one."""
    counts = wanted or [1] * len(slots)
    turns = [Row(*row, [(0,)] * count) for *row, count in zip(slots, ids, counts, strict=True)]
    states = runner.consume(turns, lambda hidden_WH, *_: hidden_WH)
    return torch.tensor([state for row in states for state in row], dtype=runner.model.dtype)


def rows(*lengths: int) -> list[list[int]]:
    return [[(7 * n + 13 * t) % 250 for t in range(length)] for n, length in enumerate(lengths)]


def test_states_of_empty_and_begun_slots_come_in_the_order_of_the_slots(pair: Pair) -> None:
    runner = ModelRunner(pair.llm, slots=3)
    ids, wanted = rows(9, 14, 5), [2, 3, 1]
    feed(runner, [1], [ids[1][:8]])
    hidden_MH = feed(runner, [0, 1, 2], ids, wanted)
    expected = [
        next_hidden(pair.llm, row[: len(row) - back])
        for row, count in zip(ids, wanted, strict=True)
        for back in reversed(range(count))
    ]
    torch.testing.assert_close(hidden_MH, torch.cat(expected))


def test_the_cache_holds_the_same_keys_as_that_of_transformers(pair: Pair) -> None:
    ids = rows(12)[0]
    runner = ModelRunner(pair.slm, slots=1)
    feed(runner, [0], [ids[:5]])
    feed(runner, [0], [ids])
    reference = DynamicCache(config=pair.slm.network.config)
    pair.slm.network(torch.tensor([ids]), past_key_values=reference)
    [part_2LSKPD] = runner.cache.parts_2LSKPD.values()
    torch.testing.assert_close(part_2LSKPD[0, 0, :1, :, :12], reference.layers[0].keys)


@pytest.mark.parametrize("way", ["cut", "paste"])
def test_infinite_values_at_forgotten_positions_change_no_state(pair: Pair, way: str) -> None:
    ids, longer = rows(10, 20)
    runner = ModelRunner(pair.slm, slots=2)
    feed(runner, [0, 1], [ids, longer[:19]])
    copied = runner.cache.copy(0)
    [part_2LSKPD] = runner.cache.parts_2LSKPD.values()
    part_2LSKPD[:, :, 0, :, 4:10] = torch.inf
    runner.cache.cut(0, 4) if way == "cut" else runner.cache.paste(0, copied, 4)
    hidden = feed(runner, [0, 1], [ids[:7], longer])
    torch.testing.assert_close(hidden[0], next_hidden(pair.slm, ids[:7])[0])


def test_a_growing_cache_keeps_its_content(pair: Pair) -> None:
    ids = rows(200)[0]
    runner = ModelRunner(pair.slm, slots=2)
    feed(runner, [1], [ids[:60]])
    before = runner.cache.capacity
    hidden = feed(runner, [1], [ids])
    assert runner.cache.capacity > before
    torch.testing.assert_close(hidden, next_hidden(pair.slm, ids))


def test_a_cache_that_cannot_grow_stays_whole(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GPUs, memory may suffice for the first one's layers, but not for the second one's."""
    layers = list(pair.llm.network.base_model.layers)
    two = [torch.device("cpu", n % 2) for n in range(len(layers))]
    monkeypatch.setattr("citer.models.cache.device_of", lambda layer: two[layers.index(layer)])
    cache = SlotCache(pair.llm.network, slots=2)
    cache.begin([1], [60], [1])
    calls = count()

    def full(tensor: torch.Tensor, padding: tuple[int, ...]) -> torch.Tensor:
        if next(calls):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.nn.functional.pad(tensor, padding)

    with monkeypatch.context() as patch:
        patch.setattr("citer.models.cache.pad", full)
        with pytest.raises(torch.OutOfMemoryError):
            cache.begin([1], [140], [1])
    assert [part.shape[4] for part in cache.parts_2LSKPD.values()] == [64, 64]
    assert cache.lengths == [0, 60]


def test_more_than_was_copied_cannot_be_pasted(pair: Pair) -> None:
    cache = SlotCache(pair.slm.network, slots=2)
    with pytest.raises(AssertionError, match="more than was copied"):
        cache.paste(1, cache.copy(0), 1)
