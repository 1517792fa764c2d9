"""Fixtures that several test folders share."""

import copy
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.drills.scale import SCALE, SEED

if TYPE_CHECKING:
    from torch import Tensor

    from citer.models.pair import Pair

# Torch reads this when it is imported, here and in all child processes. On tiny models a second
# thread costs more than it saves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Use the same examples in every run, and no deadline, which a busy machine would miss.
settings.register_profile("citer", derandomize=True, deadline=None)
settings.load_profile("citer")


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> "Pair":
    """A tiny pair in float64 in which many tokens end an answer, so that lengths differ."""
    from citer.config.params import PairParams
    from citer.models.folder import PairFolder
    from citer.models.pair import load_pair
    from tests.tiny import make_tiny_pair

    slm, llm = make_tiny_pair(tmp_path_factory.mktemp("pair"))
    params = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float64")
    loaded = load_pair(PairFolder(slm, llm), params)
    return replace(loaded, eos_ids=(loaded.eos_ids[0], *range(10, loaded.vocabulary.size, 12)))


@pytest.fixture(scope="session")
def kin(pair: "Pair") -> "Pair":
    """A pair whose LLM is the SLM with some noise: they often agree, or differ at any odds."""
    import torch

    network = copy.deepcopy(pair.slm.network)
    generator = torch.Generator().manual_seed(0)
    for weight in network.parameters():  # their own deviation is 0.2
        weight += 0.02 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return replace(pair, llm=replace(pair.llm, network=network), eos_ids=pair.eos_ids[:9])


@pytest.fixture(scope="session")
def looping(kin: "Pair") -> "Pair":
    """A pair that attends so weakly that its text soon repeats itself."""
    changed = {}
    for model in (kin.slm, kin.local_llm):
        network = copy.deepcopy(model.network)
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight *= 0.05
        changed[model.name] = replace(model, network=network)
    return replace(kin, **changed, eos_ids=kin.eos_ids[:1])


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch use two threads before the test. A forked process cannot use OpenMP's pool."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).add(1).sum() > 0
    yield
    torch.set_num_threads(before)


ROWS = Path(__file__).parent / "data" / "rows"
PUBLISHED = Path(__file__).parents[2] / "shared" / "data"  # no part of this repository


@pytest.fixture(
    scope="session",
    params=[ROWS, *([PUBLISHED] if PUBLISHED.is_dir() else [])],
    ids=["shipped", "published"][: 1 + PUBLISHED.is_dir()],
)
def real_rows(request: pytest.FixtureRequest) -> Path:
    """A folder of rows like GSM8K's and CommonsenseQA's: shipped, and published if present."""
    return request.param


@pytest.fixture
def noisy_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many rows each forward has computed noise."""
    from citer.models.vocabulary import perturbed

    counts: list[int] = []

    def counted(logits_NV: "Tensor", noise_N5: "Tensor") -> "Tensor":
        counts.append(len(logits_NV))
        return perturbed(logits_NV, noise_N5)

    monkeypatch.setattr("citer.models.vocabulary.perturbed", counted)
    return counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count what the drills recorded. pytest-xdist loads this file in its main process."""
    passed = terminalreporter.getreports("passed")
    tally = Counter[str]()
    for name, count in (each for report in passed for each in report.user_properties):
        tally[name] += int(str(count))
    if tally:
        terminalreporter.section(f"drills that held, DRILL={SCALE}, DRILL_SEED={SEED}")
        for name in sorted(tally):
            terminalreporter.line(f"{tally[name]:6,} {name}")
