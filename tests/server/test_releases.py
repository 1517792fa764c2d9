"""How the newest router is loaded: with the LLM that is loaded already."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from citer.config.params import Params, load_params
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.rule import Rule
from citer.serving.server.releases import Release, Releases
from citer.serving.server.service import Service, Settings
from citer.stages import paths
from citer.storage.tables import read_json, write_json
from tests.heads import random_router
from tests.tiny import make_tiny_pair

RULES = {"r/1": Rule("risk", 0.5, audit=0.1), "r/2": Rule("score", 0.25)}


@dataclass
class Shelf:
    """Two versions of a router, each in the folder of its name."""

    at: str = "r/1"

    def fetch(self, router: str) -> AbstractContextManager[Path]:
        return nullcontext(Path(router))


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A project with two routers of a tiny pair. The second one has an SLM of its own."""
    loaded = load_params()
    monkeypatch.chdir(tmp_path)
    slm, llm = make_tiny_pair(tmp_path / "pair")
    other, _ = make_tiny_pair(tmp_path / "other", seed=9)
    paths.SLM.parent.mkdir(parents=True)
    slm.rename(paths.SLM)
    placed = loaded.pair.model_copy(update={"llm": str(llm), "device": "cpu"})
    for seed, (name, rule) in enumerate(RULES.items()):
        own = load_pair(PairFolder(other if seed else paths.SLM, llm), placed)
        card = own.identity | {"threshold": {"rule": asdict(rule)}}
        write_bundle(Path(name), random_router(own.slm.hidden_size, seed), card)
    other.rename("r/2/slm")
    return loaded.model_copy(update={"pair": placed})


def releases(shelf: Shelf, params: Params, rule: Rule | None = None) -> Releases:
    return Releases(lambda: shelf.at, shelf.fetch, params, rule)


def test_a_newer_router_comes_with_its_slm_and_rule_and_shares_the_llm(params: Params) -> None:
    found = releases(shelf := Shelf(), params)
    first = found.made(found.latest())
    assert (first.version, first.deployment.rule) == ("r/1", RULES["r/1"])
    assert found.made(shelf.at, first) is first
    shelf.at = "r/2"
    second = found.made(shelf.at, first)
    assert (second.version, second.deployment.rule) == ("r/2", RULES["r/2"])
    assert second.deployment.pair.llm is first.deployment.pair.llm
    assert second.deployment.pair.slm.digest != first.deployment.pair.slm.digest


def test_a_given_rule_replaces_those_of_all_routers(params: Params) -> None:
    found = releases(shelf := Shelf(), params, Rule("every", 4))
    first = found.made(found.latest())
    shelf.at = "r/2"
    assert first.deployment.rule == found.made(shelf.at, first).deployment.rule == Rule("every", 4)


def test_a_router_of_another_llm_is_refused(params: Params) -> None:
    found = releases(shelf := Shelf(), params)
    first = found.made(found.latest())
    card = read_json(Path("r/2/router.json"))
    write_json(Path("r/2/router.json"), card | {"llm": {"id": "x", "digest": "0"}})
    shelf.at = "r/2"
    with pytest.raises(InputError, match="r/2: made for the LLM x"):
        found.made(shelf.at, first)


def test_a_router_without_room_for_its_caches_is_no_release(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **settings: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("citer.serving.deployment.Engine", full)
    with pytest.raises(MemoryError):
        releases(shelf := Shelf(), params).made(shelf.at)


def test_a_version_that_cannot_be_loaded_is_tried_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To load it takes memory that requests may need.

    Another one is loaded at the next look, also while the registry could not be reached before.
    """
    seconds, loaded = [0.0], list[tuple[str, float]]()

    async def sleep(wait: float) -> None:
        seconds[0] += wait
        if seconds[0] > 7 * 3600:
            raise asyncio.CancelledError

    def latest() -> str:
        if seconds[0] % 3600 == 0:
            raise InputError("no answer")
        return "r/2" if seconds[0] < 6.5 * 3600 else "r/3"

    def load(router: str, current: Release) -> Release:
        loaded.append((router, seconds[0]))
        if router == "r/2":
            raise InputError("too large")
        return current

    release: Any = SimpleNamespace(version="r/1", keeper=None)
    settings, made = Settings("r", 1, poll=30.0), releases(Shelf(), load_params())
    object.__setattr__(made, "latest", latest)
    object.__setattr__(made, "made", load)
    service = Service(settings, made, release, None)  # type: ignore[arg-type]
    monkeypatch.setattr("citer.serving.server.service.asyncio.sleep", sleep)
    monkeypatch.setattr("citer.serving.server.service.monotonic", lambda: seconds[0])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(service._poll())
    tried = [at for router, at in loaded if router == "r/2"]
    waits = [after - before for before, after in pairwise(tried)]
    assert waits[:4] == [60.0, 120.0, 240.0, 480.0]
    assert 3600.0 <= waits[-1] <= 3630.0
    assert loaded[len(tried)] == ("r/3", 6.5 * 3600)
