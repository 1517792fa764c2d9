"""A forward and the readout of its states can be captured: they use no data on the host.

On the `meta` device tensors have shapes but no values, so that reading a value is an error.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from citer.decoding.policy import CERTAINTIES, Scorer, StepView, always_slm
from citer.decoding.runner import Drafts
from citer.decoding.verifier import Verdicts
from citer.evaluation.bounds import random
from citer.models.cache import Read, SlotCache
from citer.models.graphs import DRAW, Shape, static_forward
from citer.models.pair import LanguageModel, Pair
from citer.models.router import Head
from tests.heads import random_head
from tests.networks import CASES, network

META = torch.device("meta")
SLOTS = 4
SHAPES = [Shape(1, 1, 1, 256, 0), Shape(SLOTS, 8, 8, 256, 0), Shape(2, 4, 1, 256, 0)]
SHAPES += [SHAPES[0]._replace(noisy=1), SHAPES[1]._replace(noisy=2)]


class OnDevice(TorchDispatchMode):
    """Asserts that every operation uses only tensors on the device."""

    def __torch_dispatch__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_iter((args, kwargs, out)):
            assert not isinstance(tensor, Tensor) or tensor.device == META, f"host: {function}"
        return out


class NoHostData(TorchFunctionMode):
    """Asserts that no tensor is made of numbers on the host: a GPU would wait for the copy."""

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        assert function not in (torch.tensor, torch.as_tensor), f"host: {function}"
        return function(*args, **(kwargs or {}))


def on_meta(model: LanguageModel) -> LanguageModel:
    return replace(model, network=copy.deepcopy(model.network).to(META))


@pytest.fixture(scope="module")
def meta_pair(pair: Pair) -> Pair:
    return replace(pair, slm=on_meta(pair.slm), llm=on_meta(pair.llm))


def run(model: LanguageModel, read: Read, given: int, shape: Shape) -> Tensor:
    cache = SlotCache(model.network, SLOTS)
    cache.reserve(shape.span)
    columns = 4 + shape.tokens + (given + DRAW * bool(shape.noisy)) * shape.wanted
    packed_NC = torch.empty(shape.rows, columns, dtype=torch.long, device=META)
    with torch.inference_mode(), NoHostData(), OnDevice():
        return static_forward(model, cache, shape, read, packed_NC)


SCORERS: dict[str, Scorer] = {
    "router": random_head(32).to(META),
    "untrained router": Head(None),
    **CERTAINTIES,
    "random": partial(random, 17),
    "always": always_slm,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)
def test_a_draft_uses_no_data_on_the_host(meta_pair: Pair, scorer: Scorer, shape: Shape) -> None:
    out_NUC = run(meta_pair.slm, Drafts(meta_pair, (scorer,)), 2, shape)
    assert (out_NUC.shape, out_NUC.dtype) == ((shape.rows, shape.wanted, 2), torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_verdict_uses_no_data_on_the_host(meta_pair: Pair, shape: Shape) -> None:
    out_NUC = run(meta_pair.llm, Verdicts(meta_pair.llm, meta_pair.vocabulary), 1, shape)
    assert (out_NUC.shape, out_NUC.dtype) == ((shape.rows, shape.wanted, 2), torch.float64)


@pytest.mark.parametrize("case", CASES)
def test_no_model_type_uses_data_on_the_host(meta_pair: Pair, case: str) -> None:
    model = replace(meta_pair.llm, network=network(case).to(META))
    vocabulary = replace(meta_pair, llm=model, eos_ids=(0, 10, 22)).vocabulary
    run(model, Verdicts(model, vocabulary), 1, SHAPES[1])


def test_rotary_embeddings_that_depend_on_the_longest_row_fail(meta_pair: Pair) -> None:
    model = on_meta(meta_pair.llm)
    model.network.base_model.rotary_emb.rope_type = "dynamic"
    with pytest.raises(RuntimeError, match="meta"):
        run(model, Verdicts(model, meta_pair.vocabulary), 1, SHAPES[0])


def looks(view: StepView) -> Tensor:
    return view.logits_NV[:, 0] if view.logits_NV.sum() > 0 else view.logits_NV[:, 1]


def picks(view: StepView) -> Tensor:
    return view.logits_NV[view.logits_NV > 0]


def copies(view: StepView) -> Tensor:
    return view.logits_NV @ torch.tensor([1.0] * view.logits_NV.shape[1], device=META)


def mixes(view: StepView) -> Tensor:
    return view.logits_NV[:, 0] + torch.ones(())


@pytest.mark.parametrize("scorer", [looks, picks, copies, mixes])
def test_a_scorer_that_uses_data_on_the_host_fails(meta_pair: Pair, scorer: Scorer) -> None:
    with pytest.raises((RuntimeError, NotImplementedError, AssertionError), match=r"meta|host"):
        run(meta_pair.slm, Drafts(meta_pair, (scorer,)), 2, SHAPES[0])
