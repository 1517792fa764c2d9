"""How the newest router is loaded: with the LLM that is loaded already."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from citer.cli.serve import Folder, _source
from citer.config.params import Params, load_params
from citer.errors import InputError
from citer.models.bundle import identity, write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.rule import Rule
from citer.serving.server.releases import Releases
from citer.stages import paths
from citer.storage.tables import read_json, write_json
from tests.heads import random_router
from tests.tiny import make_tiny_pair

RULES = {"r/1": Rule("risk", 0.5, audit=0.1), "r/2": Rule("score", 0.25)}


@dataclass
class Shelf:
    """Two versions of a router, each in the folder of its name."""

    at: str = "r/1"

    def latest(self) -> str:
        return self.at

    def bundle(self, version: str) -> AbstractContextManager[Path]:
        return nullcontext(Path(version))


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
        card = identity(own) | {"threshold": {"rule": asdict(rule)}}
        write_bundle(Path(name), random_router(own.slm.hidden_size, seed), card)
    other.rename("r/2/slm")
    return loaded.model_copy(update={"pair": placed})


def test_a_newer_router_comes_with_its_slm_and_rule_and_shares_the_llm(params: Params) -> None:
    releases = Releases(shelf := Shelf(), params)
    first = releases.newest()
    assert (first.version, first.deployment.rule) == ("r/1", RULES["r/1"])
    assert releases.newest(first) is first
    shelf.at = "r/2"
    second = releases.newest(first)
    assert (second.version, second.deployment.rule) == ("r/2", RULES["r/2"])
    assert second.deployment.pair.llm is first.deployment.pair.llm
    assert second.deployment.pair.slm.digest != first.deployment.pair.slm.digest


def test_a_given_rule_replaces_those_of_all_routers(params: Params) -> None:
    releases = Releases(shelf := Shelf(), params, Rule("every", 4))
    first = releases.newest()
    shelf.at = "r/2"
    assert first.deployment.rule == releases.newest(first).deployment.rule == Rule("every", 4)


def test_a_router_of_another_llm_is_refused(params: Params) -> None:
    releases = Releases(shelf := Shelf(), params)
    first = releases.newest()
    card = read_json(Path("r/2/router.json"))
    write_json(Path("r/2/router.json"), card | {"llm": {"id": "x", "digest": "0"}})
    shelf.at = "r/2"
    with pytest.raises(InputError, match="r/2: made for the LLM x"):
        releases.newest(first)


def test_a_router_without_room_for_its_caches_is_no_release(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **settings: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("citer.serving.deployment.Engine", full)
    with pytest.raises(MemoryError):
        Releases(Shelf(), params).newest()


def test_the_version_of_a_folder_names_its_content(params: Params) -> None:
    first, second = _source("r/1"), _source("r/2")
    assert isinstance(first, Folder)
    assert first.latest().startswith("r/1 ")
    assert first.latest()[4:] != second.latest()[4:]
    with pytest.raises(InputError, match=r"--router: 'r/3': no router.json there"):
        _source("r/3")
