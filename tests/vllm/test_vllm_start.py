"""What is checked before vLLM starts an engine; without vLLM."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from citer.data.prompts import PromptSettings
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.folder import ModelFolder, PairFolder
from citer.rule import Rule
from citer.vllm import loading
from citer.vllm.chats import _traffic, open_log
from citer.vllm.loading import Served, Settings, engine_of, prepare, read_served, read_settings
from tests.heads import random_router
from tests.served import served as row
from tests.tiny import TinyPair, make_tiny_pair


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return make_tiny_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def settings(tiny: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings for the tiny pair; the router's folder is given relative to the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(loading.PINNED, "{}")  # so that it is restored afterwards
    write_router(PairFolder(*tiny))
    return {"router": "router", "rule": "risk 0.9 audit 0.1"}


def write_router(folders: PairFolder, **card: Any) -> None:
    router = random_router(folders.slm.config.hidden_size)
    write_bundle(Path("router"), router, folders.identity("float32") | card)


def config(tiny: TinyPair, settings: Any, **changes: Any) -> Any:
    """Return the parts of a VllmConfig that are read."""
    drafts = {"method": "draft_model", "model": str(tiny.slm), "num_speculative_tokens": 16}
    model = SimpleNamespace(
        model=str(tiny.llm), tokenizer=str(tiny.llm), dtype="torch.float32", quantization=None
    )
    model.get_diff_sampling_param = dict
    own = {
        "additional_config": {"citer": settings},
        "model_config": model,
        "speculative_config": SimpleNamespace(**drafts),
        "lora_config": None,
        "parallel_config": SimpleNamespace(data_parallel_size=1),
    }
    return SimpleNamespace(**own | changes)


def prepared(config: Any) -> tuple[str, Settings, Served]:
    """Return a router's name, the settings with its folder, and what requests may ask for."""
    settings, engine = read_settings(config.additional_config), engine_of(config)
    name, settings = prepare(config, settings)
    return name, settings, read_served(settings, engine)


def refusal(tiny: TinyPair, settings: Any, **changes: Any) -> str:
    with pytest.raises(InputError) as refused:
        prepared(config(tiny, settings, **changes))
    return str(refused.value)


def test_the_engine_gets_absolute_folders(
    settings: dict[str, Any], tiny: TinyPair, tmp_path: Path
) -> None:
    version, local, served = prepared(config(tiny, settings))
    absolute = {**settings, "router": str(tmp_path / "router")}
    assert local.model_dump(mode="json", exclude_defaults=True) == absolute
    assert version == "router"  # as the settings name it
    assert served.asked(None) == Rule.parse(settings["rule"])
    assert set(served.heads) == {"stand", "agree"}


def test_a_router_of_another_pair_is_refused(settings: dict[str, Any], tiny: TinyPair) -> None:
    model = config(tiny, settings).model_config
    model.model = model.tokenizer = str(tiny.slm)
    assert "expected two models" in refusal(tiny, settings, model_config=model)


def test_a_router_of_an_slm_in_8_bits_is_refused(settings: dict[str, Any], tiny: TinyPair) -> None:
    write_router(PairFolder(ModelFolder(tiny.slm, weights="int8"), tiny.llm))
    expected = "router: made for an SLM with pair.slm_weights: int8, expected one for its stored"
    assert expected in refusal(tiny, settings)


def test_what_is_not_the_llm_of_the_router_is_refused(
    settings: dict[str, Any], tiny: TinyPair
) -> None:
    for name, value, complaint in (
        ("dtype", "torch.bfloat16", "--dtype bfloat16: "),
        ("tokenizer", "other", "--tokenizer other: expected the LLM's own"),
        ("model", "org/name", "model org/name: expected a folder"),
    ):
        model = config(tiny, settings).model_config
        setattr(model, name, value)
        assert complaint in refusal(tiny, settings, model_config=model)
    several = SimpleNamespace(data_parallel_size=2)
    logs = settings | {"log": "log"}
    assert "log: expected one engine" in refusal(tiny, logs, parallel_config=several)
    assert "--enable-lora: expected none" in refusal(tiny, settings, lora_config="some")
    model = config(tiny, settings).model_config
    model.get_diff_sampling_param = lambda: {"temperature": 0.7, "repetition_penalty": 1.05}
    expected = "repetition_penalty 1.05: expected --generation-config vllm"
    assert expected in refusal(tiny, settings, model_config=model)


def test_answers_end_as_those_of_the_certificate(settings: dict[str, Any], tiny: TinyPair) -> None:
    folders = PairFolder(*tiny, PromptSettings(stop=("END",)))
    write_router(folders, prompts={"stop": ["END"]})
    _, _, served = prepared(config(tiny, settings))
    request = SimpleNamespace(stop="own", stop_token_ids=None, ignore_eos=False)
    expected = {"stop": ["own", "END"], "stop_token_ids": [*folders.eos_ids]}
    assert served.ends(request) == expected
    request.ignore_eos = True
    assert served.ends(request)["stop_token_ids"] == []


def test_a_router_needs_the_slm_as_draft_model(settings: dict[str, Any], tiny: TinyPair) -> None:
    assert "but nothing drafts" in refusal(tiny, settings, speculative_config=None)
    ngram = SimpleNamespace(method="ngram", model=None, num_speculative_tokens=4)
    own = settings | {"rule": "audit 0.5"}
    assert "scores an SLM, but ngram drafts" in refusal(tiny, own, speculative_config=ngram)


def test_any_speculator_takes_an_audit_without_a_router(tiny: TinyPair) -> None:
    ngram = SimpleNamespace(method="ngram", model=None, num_speculative_tokens=4)
    given = config(tiny, {"rule": "audit 0.5"}, speculative_config=ngram)
    _, _, served = prepared(given)
    assert served.asked(None) == Rule("every", 4, 0.5)


def test_a_rule_that_was_certified_for_another_server_must_be_named(
    settings: dict[str, Any], tiny: TinyPair
) -> None:
    def stored(rule: str, engine: str, **more: Any) -> None:
        card = {"threshold": {"rule": vars(Rule.parse(rule))}, "serve": {"engine": engine}}
        write_router(PairFolder(*tiny), **card, **more)

    own = {"router": settings["router"]}
    stored("risk 0.9 audit 0.1", "citer")
    assert "was certified for another server, expected one of `serve: {eng" in refusal(tiny, own)
    prepared(config(tiny, settings))
    stored("risk 0.9 audit 1", "citer")  # the LLM's own text, wherever it serves
    prepared(config(tiny, own))
    stored("risk 0.9 audit 0.1 cap 8", "vllm")
    prepared(config(tiny, own))
    stored("risk 0.9 audit 0.1 cap 8", "vllm", promise={"sampling": "temperature 0.7"})
    assert "was certified by temperature 0.7, expected one of" in refusal(tiny, own)
    stored("risk 0.9 audit 1 cap 8", "vllm", promise={"sampling": "temperature 0.7"})
    prepared(config(tiny, own))


def test_a_further_api_server_gets_the_same_router(
    settings: dict[str, Any], tiny: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alias has moved meanwhile."""
    versions = [("r/1", Path("router").absolute()), ("r/2", "moved")]
    monkeypatch.setattr(loading, "fetched", lambda _: versions.pop(0))
    registered = config(tiny, settings | {"router": "models:/r@champion"})
    assert prepared(registered)[:2] == prepared(registered)[:2]
    assert versions == [("r/2", "moved")]
    assert json.loads(loading.os.environ[loading.PINNED])["models:/r@champion"][0] == "r/1"


PATH = ["risk 0.9 audit 0.1 cap 8", "risk 0.5 audit 1"]


def promised(tiny: TinyPair, **changes: Any) -> dict[str, Any]:
    """Write a router with a promise. Return settings that name its evidence."""
    promise = {"path": PATH, "graded": 0.05, "same": 0.05, "delta": 0.05} | changes
    deployed = {"rule": vars(Rule.parse(promise["path"][0]))}
    stored = {"threshold": deployed, "serve": {"engine": "vllm"}}
    write_router(PairFolder(*tiny), **stored, promise=promise)
    return {"router": "router", "shadow": 0.01, "evidence": "kept/evidence.db"}


def test_a_promise_is_kept_beside_the_engine(
    settings: dict[str, Any], tiny: TinyPair, tmp_path: Path
) -> None:
    own = promised(tiny)
    version, local, _ = prepared(config(tiny, own))
    assert local.evidence == "kept/evidence.db"
    assert (version, local.shadow, local.shadow_deadline) == ("router", 0.01, 24)
    assert not (tmp_path / "kept").exists()  # nothing is made before all is checked


def test_a_step_back_makes_tables_of_the_log(settings: dict[str, Any], tiny: TinyPair) -> None:
    """Another server may tell of it, and a retraining reads tables only."""
    own = config(tiny, promised(tiny) | {"log": "log"})
    version, local, served = prepared(own)
    assert served.logged
    log = open_log(local, tiny.llm, version)
    assert log
    assert log.keeper
    keeper = log.keeper
    _traffic("log", None).put("{}", PATH[0], row("Why?"))
    while keeper.standing.place == 0:
        keeper.evidence.add(version, PATH[0], True, 0.05)
        keeper.refresh()
    assert len([*Path("log").glob("*.parquet")]) == 1
    _traffic.cache_clear()


def test_a_promise_that_vllm_cannot_keep_is_refused(
    settings: dict[str, Any], tiny: TinyPair
) -> None:
    own = promised(tiny)
    sampled = promised(tiny, sampling="temperature 0.7", path=PATH[1:] * 2)
    assert "one of greedy answers" in refusal(tiny, sampled)
    assert "at most num_spec" in refusal(tiny, promised(tiny, path=[PATH[0], "every 2 cap 17"]))
    write_router(PairFolder(*tiny), threshold={"rule": vars(Rule.parse("risk 0.9 audit 1"))})
    assert "its rule is not certified" in refusal(tiny, own)
