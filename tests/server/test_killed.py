"""`citer serve` is killed again and again while it writes evidence."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random

import httpx
import openai
import pytest
from ruamel.yaml import YAML
from transformers import GenerationConfig

from citer.config.params import load_params
from citer.decoding.engine import Engine
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.serving.deployment import Deployment
from citer.serving.evidence import Evidence
from citer.stages import paths
from tests.flows.servers import free_port, until
from tests.heads import random_router
from tests.server.promised import EOS, PROMISE, losses
from tests.server.running import QUESTIONS, RULE, asked
from tests.tiny import make_tiny_pair

pytestmark = pytest.mark.slow

PROGRAM = "from citer.cli.main import main; main()"
KILLS = 6


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """The router of a project whose server shadows every request and never steps back."""
    monkeypatch.chdir(tmp_path)
    slm, llm = make_tiny_pair(tmp_path / "pair")
    for folder in (slm, llm):
        GenerationConfig(eos_token_id=list(EOS)).save_pretrained(folder)
    paths.SLM.parent.mkdir(parents=True)
    slm.rename(paths.SLM)
    yaml = YAML()
    content = yaml.load(Path(__file__).parents[2] / "params.yaml")
    content["pair"] |= {"llm": str(llm), "device": "cpu"}
    content["serve"] |= {"shadow": 1.0, "false_alarms": 1e9}
    content["answer"]["max_new_tokens"] = 24
    yaml.dump(content, Path("params.yaml"))
    params = load_params()
    pair = load_pair(PairFolder(paths.SLM, llm), params.pair)
    router = random_router(pair.slm.hidden_size)
    card = pair.identity | {"threshold": {"rule": asdict(RULE)}, "promise": PROMISE}
    write_bundle(Path("router"), router, card)
    return Deployment(Engine(pair, 4, 24, delayed=True), router, RULE)


@contextmanager
def serving() -> Iterator[str]:
    """Run the server, and kill it at the end. Yields its address."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = ["serve", "--router", "router", "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *command])

    def healthy() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{url}/health").is_success
        except httpx.TransportError:
            return False

    try:
        until(healthy, 120)
        yield url
    finally:
        process.kill()
        process.wait()


def test_evidence_is_what_it_was_or_less_by_what_was_not_written(deployment: Deployment) -> None:
    """Each life of the server adds the verdicts on its first requests, in order, each once."""
    random, seen, expected = Random(0), list[bool](), losses(deployment)
    assert {*expected} == {True, False}
    for _ in range(KILLS):
        with serving() as url:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            for question in QUESTIONS[: random.randint(2, 12)]:
                body = asked(question) | {"model": "citer-router"}
                client.chat.completions.create(**body)
            time.sleep(random.random())  # kills within a shadow answer, a verdict or a commit
        found = [entry.lost for entry in Evidence(paths.EVIDENCE).after("router")]
        assert found[: len(seen)] == seen
        assert found[len(seen) :] == expected[: len(found) - len(seen)]
        seen = found
    assert seen
