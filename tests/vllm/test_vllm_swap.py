"""A newer version is taken up without a restart: what is checked, and in which order."""

import asyncio
import json
import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
import torch
from mlflow import MlflowClient
from safetensors.torch import load_file, save_file

from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.rule import LLM as LLM_ALONE
from citer.rule import Rule
from citer.vllm import swap
from citer.vllm.chats import ChatLog
from citer.vllm.loading import Engine, Settings
from citer.vllm.swap import Live, Version
from tests.flows.servers import free_port, mlflow_server, serving, until
from tests.heads import random_router
from tests.tiny import make_tiny_pair
from tests.vllm.api import ENVIRONMENT, command, documented_template
from tests.vllm.offline import LLM, PYTHON, wide_slm
from tests.vllm.test_vllm_promise import chats
from tests.vllm.test_vllm_registry import log

RULES = ("risk 0.9 audit 0.25", "every 8 audit 0.5")  # of both versions


def write_version(
    folder: Path, models: PairFolder, rule: str, kept: str = "", seed: int = 0
) -> Path:
    """Write a bundle. `kept`: where MLflow has its SLM."""
    stored = {"threshold": {"rule": vars(Rule.parse(rule))}, "serve": {"engine": "vllm"}}
    router = random_router(models.slm.config.hidden_size, seed=seed, slope=3.0)
    card = models.identity("float32") | stored
    card["slm"] |= {"kept": kept} if kept else {}
    write_bundle(folder, router, card)
    return folder


def other_weights(slm: Path, target: Path, noise: float) -> Path:
    """Copy a model, with noise on all weights."""
    shutil.copytree(slm, target)
    torch.manual_seed(0)
    weights = load_file(target / "model.safetensors")
    changed = {name: w + noise * w.std() * torch.randn_like(w) for name, w in weights.items()}
    save_file(changed, target / "model.safetensors", {"format": "pt"})
    return target


class Client:
    """Stands for vLLM's AsyncLLM. It notes what it is asked, and which rule is then in force."""

    def __init__(self, live: Callable[[], Live], error: Exception | None = None) -> None:
        self.live, self.error, self.asked = live, error, list[Any]()

    async def pause_generation(self, mode: str) -> None:
        self.asked.append(("pause", mode, self.live().now.served.default))

    async def collective_rpc(self, method: str, args: Any) -> None:
        self.asked.append((method, *args))
        log = self.live().now.log
        assert not (log and log.serves)  # not before the engine has it
        if self.error:
            raise self.error

    async def resume_generation(self) -> None:
        self.asked.append("resume")


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    """A server of version 1, whose alias has moved to version 2."""
    pair = make_tiny_pair(tmp_path / "pair")
    for number, rule in enumerate(RULES, 1):
        slm = other_weights(pair.slm, tmp_path / f"{number}.slm", 0.1 * number)
        folder = write_version(tmp_path / str(number), PairFolder(slm, pair.llm), rule)
        slm.rename(folder / "slm")
    move(monkeypatch, tmp_path / "2")
    first = tmp_path / "1"
    engine = Engine(str(pair.llm), "float32", "draft_model", str(first / "slm"), 16)
    settings = Settings(router=str(first))
    return Live(Version.read("r/1", settings, engine), "models:/r@champion")


def move(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str = "r/2") -> None:
    monkeypatch.setattr(swap, "fetched", lambda alias: (name, folder))


def renew(live: Live, error: Exception | None = None) -> list[Any]:
    client = Client(lambda: live, error)
    asyncio.run(live.renew(client))
    return client.asked


def test_vllm_pauses_takes_heads_and_slm_and_goes_on(live: Live, tmp_path: Path) -> None:
    second = str(tmp_path / "2")
    pause, (method, served, slm), resume = renew(live)
    assert pause == ("pause", "wait", RULES[1])  # for requests that come meanwhile
    assert (method, served["router"], slm) == ("citer_take", second, f"{second}/slm")
    assert resume == "resume"
    assert (live.now.name, live.now.served.asked(None)) == ("r/2", Rule.parse(RULES[1]))
    assert renew(live) == []


def test_an_slm_in_a_folder_of_its_own_stays(live: Live, tmp_path: Path) -> None:
    """The new version must then be for the same one."""
    slm = other_weights(tmp_path / "1/slm", tmp_path / "own", 0)
    live.now = swap.replace(live.now, engine=live.now.engine._replace(slm=str(slm)))
    assert renew(live) == []
    assert live.now.name == "r/1"
    models = PairFolder(slm, Path(live.now.engine.llm))
    second = write_version(tmp_path / "2", models, RULES[1])
    _, (_, served, slm), _ = renew(live)
    assert (served["router"], slm) == (str(second), None)


def test_a_version_that_does_not_fit_changes_nothing_and_is_told_of_once(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.now
    card = json.loads((tmp_path / "2/router.json").read_text())
    card["llm"]["digest"] = "another"
    (tmp_path / "2/router.json").write_text(json.dumps(card))
    with caplog.at_level(logging.WARNING):
        assert renew(live) == renew(live) == []
    [said] = caplog.messages
    assert "the newest router cannot be used, r/1 stays: " in said
    assert "made for the LLM" in said
    larger = make_tiny_pair(tmp_path / "larger", hidden=(64, 48))
    models = PairFolder(larger.slm, Path(before.engine.llm))
    third = write_version(tmp_path / "3", models, RULES[1])
    larger.slm.rename(third / "slm")
    move(monkeypatch, third, "r/3")
    assert renew(live) == []
    assert "r/3: its SLM is another network, expected a restart" in caplog.text

    def lost(_: str) -> None:
        raise InputError("no answer")

    monkeypatch.setattr(swap, "fetched", lost)
    assert renew(live) == renew(live) == []
    move(monkeypatch, tmp_path / "1", "r/1")
    assert renew(live) == []
    monkeypatch.setattr(swap, "fetched", lost)
    assert renew(live) == []
    assert caplog.text.count("no answer") == 2  # once for each time that it is lost
    assert live.now is before


def test_a_request_for_the_heads_of_another_version_is_not_routed(live: Live) -> None:
    """It may have waited while the engine took up this one."""
    served, rule = live.now.served, RULES[1]
    own = {"rule": rule, "router": live.now.settings.router}
    for asked, expected in (
        (own, rule),
        ({"rule": rule}, rule),
        (own | {"router": "2"}, "score 1"),
    ):
        params = SimpleNamespace(extra_args={"citer": asked})
        assert served.of(params) == Rule.parse(expected)


@pytest.mark.parametrize("error", [None, RuntimeError("no room")])
def test_a_version_serves_from_when_the_engine_has_it_to_when_another_comes(
    live: Live, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    first, second = ChatLog(()), ChatLog(())
    live.now = swap.replace(live.now, log=first)
    monkeypatch.setattr(swap, "open_log", lambda *_: second)
    renew(live, error)
    assert (first.serves, second.serves) == (False, error is None)


def test_shadow_answers_of_a_version_that_does_not_serve_are_no_evidence() -> None:
    def take(*given: Any) -> None:
        raise AssertionError(given)

    async def again(_: Rule) -> str:
        return "the LLM's"

    keeper: Any = SimpleNamespace(take=take, rule=Rule.parse(RULES[0]))
    log = ChatLog((), keeper=keeper, dropped=1, serves=False)
    problem: Any = None
    asyncio.run(log._compare(problem, (LLM_ALONE,), {keeper.rule: "a text"}, again))
    assert log.dropped == 1


def test_if_the_engine_fails_the_llm_alone_answers(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    assert renew(live, RuntimeError("no room"))[-1] == "resume"
    assert live.now.served.asked(None) == LLM_ALONE
    assert "r/2: the engine cannot take it up; restart the server" in caplog.text
    assert renew(live) == []  # it is not tried again


@pytest.fixture
def versions(tmp_path: Path) -> Any:
    """Two versions on an MLflow server, whose SLMs and rules differ; the first one is champion."""
    slm = wide_slm(tmp_path)
    with mlflow_server(tmp_path) as url:
        mlflow.set_tracking_uri(url)
        client = MlflowClient()
        experiment = client.create_experiment("routers")
        client.create_registered_model("r")
        for number, noise, rule in (("1", 0.0, "risk 0.8"), ("2", 0.3, "risk 0.6 by agree")):
            own = other_weights(slm, tmp_path / f"slm-{number}", noise)
            kept = log(client, experiment, own, None)
            models = PairFolder(own, LLM)
            folder = write_version(tmp_path / number, models, rule, kept, seed=int(number))
            router = log(client, experiment, folder, "artifacts/bundle")
            client.create_model_version("r", router, model_id=router.removeprefix("models:/"))
        client.set_registered_model_alias("r", "champion", "1")
        yield url, client


@pytest.mark.vllm
@pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON: the python of an environment with vLLM")
def test_a_promoted_version_answers_without_a_restart(versions: Any, tmp_path: Path) -> None:
    """Then each text is that of a server which started with this version."""
    url, client = versions
    env = ENVIRONMENT | {"MLFLOW_TRACKING_URI": url, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "chat.jinja").write_text(documented_template())

    def server(router: str) -> Any:
        port = free_port()
        options = f"--served-model-name llm --host 127.0.0.1 --port {port} --chat-template"
        line = command({"router": router}, router, *options.split(), str(tmp_path / "chat.jinja"))
        return serving(line, env, f"http://127.0.0.1:{port}", seconds=600), port

    running, port = server("models:/r/2")
    with running:
        expected = chats(f"http://127.0.0.1:{port}", 3)
    running, port = server("models:/r@champion")
    at = f"http://127.0.0.1:{port}"
    with running, ThreadPoolExecutor(1) as clients:
        assert chats(at, 3) != expected
        ended: list[bool] = []
        during = clients.submit(lambda: [chats(at, 2) for _ in iter(lambda: bool(ended), True)])
        client.set_registered_model_alias("r", "champion", "2")
        try:
            until(lambda: chats(at, 3) == expected, 300)
        finally:
            ended.append(True)
        assert during.result()  # no request fails
