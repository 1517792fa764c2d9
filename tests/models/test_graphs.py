"""Replayed forwards at fixed shapes, against those of transformers."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from citer.config.params import PairParams
from citer.decoding.answer import Work
from citer.decoding.engine import Engine
from citer.decoding.runner import Held, ModelRunner
from citer.models.cache import Row, SlotCache
from citer.models.folder import PairFolder
from citer.models.graphs import MOST, SHORTEST, WIDEST, cuda_graphs, no_graphs
from citer.models.pair import LanguageModel, Pair, load_pair
from tests.decoding.reference import next_hidden
from tests.graphs import Traced
from tests.networks import network

SLOTS = 5


def states(hidden_WH: Tensor, given_WK: Tensor, noise_R6: Tensor) -> Tensor:
    return hidden_WH


def given(hidden_WH: Tensor, given_WK: Tensor, noise_R6: Tensor) -> Tensor:
    return given_WK.double()


def row(slot: int, length: int, wanted: int = 1) -> Row:
    """Make a row with the tokens of its slot. `given` holds (slot, position)."""
    ids = [(7 * slot + 13 * place) % 250 for place in range(length)]
    return Row(slot, ids, [(slot, place) for place in range(length - wanted, length)])


def begun(model: LanguageModel, traced: Traced, lengths: list[int]) -> ModelRunner:
    """Make a runner whose first slots hold rows of these lengths."""
    runner = ModelRunner(model, SLOTS, traced)
    runner.consume([row(slot, length) for slot, length in enumerate(lengths)], states)
    assert traced.captures == 0
    return runner


def check(runner: ModelRunner, *rows: Row) -> None:
    """Feed the rows, and compare their states with those of whole forwards."""
    for hidden, one in zip(runner.consume(rows, states), rows, strict=True):
        places = range(len(one.ids) - len(one.given), len(one.ids))
        own = [next_hidden(runner.model, list(one.ids[: place + 1])) for place in places]
        torch.testing.assert_close(torch.tensor(hidden, dtype=own[0].dtype), torch.cat(own))


@pytest.mark.parametrize("case", ["smollm3, window", "gemma3_text"])
def test_layers_of_several_kinds_share_a_graph(case: str) -> None:
    model = LanguageModel("slm", Path(case), "", network(case, vocab_size=250))
    runner = begun(model, Traced(), [9, 14, 1, 30, 4])
    check(runner, *(row(slot, length + 1) for slot, length in enumerate([9, 14, 1, 30, 4])))
    check(runner, row(3, 36), row(1, 17, wanted=2))


def test_turns_of_all_lengths_in_any_slots_give_the_states_of_transformers(pair: Pair) -> None:
    runner = begun(pair.llm, Traced(), [9, 14, 1, 30, 4])
    check(runner, *(row(slot, length + 1) for slot, length in enumerate([9, 14, 1, 30, 4])))
    check(runner, row(3, 36), row(1, 17))
    check(runner, row(0, 14, wanted=4), row(2, 4, wanted=1), row(4, 6, wanted=1))
    check(runner, row(2, 5))
    check(runner, *(row(slot, 38 + slot, wanted=1 + slot % 2) for slot in range(SLOTS)))


def test_begun_and_empty_slots_share_a_forward_in_any_order(pair: Pair) -> None:
    traced = Traced()
    runner = begun(pair.slm, traced, [9, 14])
    check(runner, row(3, 8, wanted=2), row(1, 16, wanted=2), row(2, 5), row(0, 10))
    assert traced.captures == 1
    assert runner.total == Work(3, 9 + 14 + 8 + 5 + 2 + 1, 9 + 14 + 8 + 5 + 16 + 10)


def test_slots_without_a_turn_keep_their_content(pair: Pair) -> None:
    runner = begun(pair.llm, Traced(), [9, 14, 3])
    held = [runner.cache.copy(slot) for slot in range(3)]
    check(runner, row(1, 17))
    assert runner.cache.lengths == [9, 17, 3, 0, 0]
    for slot in (0, 2):
        torch.testing.assert_close(runner.cache.copy(slot), held[slot], rtol=0, atol=0)


def test_the_cache_has_room_for_padding(pair: Pair) -> None:
    """Padding of a row, and of a slot that holds more than all slots with a row."""
    runner = begun(pair.llm, Traced(), [9, SHORTEST - 1, 9, 9])
    check(runner, *(row(slot, 11) for slot in (0, 2, 3)))
    check(runner, row(1, SHORTEST + 2))


def test_cut_positions_are_written_again(pair: Pair) -> None:
    runner = begun(pair.llm, Traced(), [9, 14])
    check(runner, row(0, 14), row(1, 15))
    runner.prepare([Held(0, 10)])
    other = Row(0, [*row(0, 10).ids, 5, 6, 7], [(0, 0)] * 3)
    check(runner, other, row(1, 18, wanted=3))


def test_a_shape_is_captured_once(pair: Pair) -> None:
    traced = Traced()
    runner = begun(pair.slm, traced, [9, 14])
    for step in range(1, 5):
        check(runner, row(0, 9 + step), row(1, 14 + step))
    assert traced.captures == 1
    check(runner, row(0, 16), row(1, 21))
    check(runner, row(0, 20), row(1, 24))
    assert traced.captures == 2


def test_graphs_are_captured_again_after_the_cache_has_moved(pair: Pair) -> None:
    traced = Traced()
    runner = begun(pair.llm, traced, [SHORTEST - 2, 9])
    check(runner, row(0, SHORTEST - 1), row(1, 10))
    check(runner, row(0, SHORTEST), row(1, 11))
    assert (runner.cache.capacity, traced.captures) == (SHORTEST, 1)
    check(runner, row(0, SHORTEST + 1), row(1, 12))
    assert (runner.cache.capacity, traced.captures) == (2 * SHORTEST, 2)
    check(runner, row(1, 13))
    runner.consume([row(2, 2 * SHORTEST + 1)], states)
    check(runner, row(1, 14))
    assert traced.captures == 4


def test_graphs_are_captured_again_for_another_readout(pair: Pair) -> None:
    traced = Traced()
    runner = begun(pair.llm, traced, [9, 14])
    check(runner, row(0, 10))
    rows = [row(0, 13, wanted=2), row(1, 15)]
    assert runner.consume(rows, given) == [[[0, 11], [0, 12]], [[1, 14]]]
    check(runner, row(0, 14))
    assert traced.captures == 3


NONE = [(0,) * 5] * 2


def drawn(hidden_WH: Tensor, given_WK: Tensor, noise_R6: Tensor) -> Tensor:
    """Return the noise that each state gets, after its own `given`."""
    noise_W5 = torch.zeros(len(given_WK), 5, dtype=torch.int64)
    if len(noise_R6):
        noise_W5 = noise_W5.index_copy(0, noise_R6[:, 0], noise_R6[:, 1:])
    return torch.cat([given_WK, noise_W5], 1).double()


def test_noise_reaches_the_states_of_its_turn_only(pair: Pair) -> None:
    traced = Traced()
    runner = begun(pair.llm, traced, [9, 14, 3, 7])
    for step, slots in enumerate([(), (2,), (0, 1, 3), (1,), (0, 1, 2, 3)]):
        rows = []
        for slot, length in enumerate([9, 14, 3, 7]):
            plain = row(slot, length + 2 * step + 2, wanted=1 + slot % 2)
            noise = [(7, place, slot, 2, 1) for _, place in plain.given]
            rows.append(plain._replace(noise=noise) if slot in slots else plain)
        assert runner.consume(rows, drawn) == [
            [[*own, *noise] for own, noise in zip(one.given, one.noise or NONE, strict=False)]
            for one in rows
        ]
    assert traced.captures == 3  # no row with noise, one, and four


@pytest.mark.parametrize(
    ("rows", "tokens", "captures"),
    [(1, WIDEST, 1), (1, WIDEST + 1, 0), (MOST // WIDEST + 1, WIDEST, 0)],
)
def test_long_forwards_are_not_captured(pair: Pair, rows: int, tokens: int, captures: int) -> None:
    traced = Traced()
    runner = ModelRunner(pair.slm, rows, traced)
    runner.consume([row(slot, 9) for slot in range(rows)], states)
    check(runner, *(row(slot, 9 + tokens) for slot in range(rows)))
    assert traced.captures == captures


@pytest.mark.parametrize("switch", [True, False])
def test_a_model_on_a_gpu_is_captured_unless_cuda_graphs_are_off(
    pair: Pair, switch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = list[torch.device]()
    monkeypatch.setattr("citer.models.graphs.cuda_capture", lambda device: on.append(device))
    folders = {"slm": str(pair.slm.path), "llm": str(pair.llm.path)}
    params = PairParams(**folders, device="cpu", dtype="float32", cuda_graphs=switch)
    pair_on_gpu = load_pair(PairFolder(pair.slm.path, pair.llm.path), params)
    devices = [torch.device("cuda", 1), torch.device("cuda", 0)]  # with pair.llm_device_map
    for model, device in zip((pair_on_gpu.slm, pair_on_gpu.llm), devices, strict=True):
        vars(model)["device"] = device
    engine = Engine(pair_on_gpu, 1, 8)
    runners = (engine._slm, engine._verifier._runner)
    assert [bool(runner._graphs) for runner in runners] == [switch, switch]
    assert on == (devices if switch else [])
    assert "cuda_graphs" not in str(pair_on_gpu.identity)


def test_without_a_gpu_nothing_is_captured(pair: Pair) -> None:
    for way in (cuda_graphs, no_graphs):
        assert way(pair.slm, SlotCache(pair.slm.network, 1)) is None
