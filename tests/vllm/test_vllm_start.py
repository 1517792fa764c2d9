"""What is checked before vLLM starts an engine; without vLLM."""

from pathlib import Path
from typing import Any

import pytest

from citer.errors import InputError
from citer.models.bundle import folder_identity, write_bundle
from citer.models.folder import ModelFolder, PairFolder
from citer.vllm import loading
from citer.vllm.loading import Engine
from tests.heads import random_router
from tests.tiny import TinyPair, make_tiny_pair

OURS = "citer.vllm.RoutedProposer"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return make_tiny_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def settings(tiny: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings for the tiny pair; the router's folder is given relative to the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(loading.CHECKED, "{}")  # so that it is restored afterwards
    folders = PairFolder(*tiny)
    router = random_router(folders.slm.config.hidden_size)
    write_bundle(tmp_path / "router", router, folder_identity(folders, "float32"))
    return {"router": "router", "slm": str(tiny.slm), "rule": "risk 0.9 audit 0.1"}


def engine(tiny: TinyPair, dtype: str = "float32") -> Engine:
    return Engine(str(tiny.llm), str(tiny.llm), dtype, "cpu", (), 16)


def test_the_engine_gets_absolute_folders_and_a_rule(
    settings: dict[str, Any], tiny: TinyPair, tmp_path: Path
) -> None:
    served, local = loading.prepare({"citer": settings}, engine(tiny), OURS)
    assert local.model_dump(mode="json", exclude_none=True) == {
        **settings,
        "router": str(tmp_path / "router"),
    }
    assert str(served.rule) == settings["rule"]
    assert set(served.heads) == {"stand", "agree"}


def test_a_router_of_another_pair_is_refused(settings: dict[str, Any], tiny: TinyPair) -> None:
    other = Engine(str(tiny.slm), str(tiny.slm), "float32", "cpu", (), 16)
    with pytest.raises(InputError, match="expected two models"):
        loading.prepare({"citer": settings}, other, OURS)


def test_a_router_of_an_slm_in_8_bits_is_refused(settings: dict[str, Any], tiny: TinyPair) -> None:
    folders = PairFolder(ModelFolder(tiny.slm, weights="int8"), tiny.llm)
    router = random_router(folders.slm.config.hidden_size)
    write_bundle(Path("router"), router, folder_identity(folders, "float32"))
    refusal = r"router: made for an SLM with pair.slm_weights: int8, expected one for its stored"
    with pytest.raises(InputError, match=refusal):
        loading.prepare({"citer": settings}, engine(tiny), OURS)


def test_another_dtype_is_refused_before_a_weight_is_read(
    settings: dict[str, Any], tiny: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "folder_identity", None)
    refusal = r"^--dtype bfloat16: .*router was made for float32, expected --dtype float32$"
    with pytest.raises(InputError, match=refusal):
        loading.prepare({"citer": settings}, engine(tiny, "bfloat16"), OURS)


@pytest.mark.parametrize("name", ["router.json", "router.safetensors"])
def test_a_damaged_router_is_refused(
    settings: dict[str, Any], tiny: TinyPair, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "router" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=name):
        loading.prepare({"citer": settings}, engine(tiny), OURS)


def test_a_router_without_a_rule_is_refused(settings: dict[str, Any], tiny: TinyPair) -> None:
    with pytest.raises(InputError, match=r"no rule in router\.json"):
        loading.prepare({"citer": settings | {"rule": None}}, engine(tiny), OURS)


@pytest.mark.parametrize("drafter", [None, "ngram"])
def test_another_drafter_is_refused(
    settings: dict[str, Any], tiny: TinyPair, drafter: str | None
) -> None:
    with pytest.raises(InputError, match=f"drafts come from {drafter}: expected .*{OURS}"):
        loading.prepare({"citer": settings}, engine(tiny), drafter)


def test_a_further_api_server_gets_the_same_router(
    settings: dict[str, Any], tiny: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alias has moved meanwhile, and nothing is checked twice."""
    versions = [str(Path("router").absolute()), "moved"]
    monkeypatch.setattr(loading, "fetched", lambda _: versions.pop(0))
    registered = settings | {"router": "models:/r@champion"}
    first = loading.prepare({"citer": registered}, engine(tiny), OURS)
    monkeypatch.setattr(loading, "check_pair", None)
    assert loading.prepare({"citer": registered}, engine(tiny), OURS) == first
    assert versions == ["moved"]
