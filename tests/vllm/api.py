"""A real `vllm serve` with routing, and OpenAI's client of it."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from citer.data.tasks import TASKS
from citer.data.traffic import read_served
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from tests.flows.servers import free_port, serving
from tests.heads import random_router
from tests.tasks import prompt_text
from tests.vllm import offline
from tests.vllm.offline import LLM, PYTHON, ROOT, draft_model, questions, wide_slm

NEEDS_VLLM = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON: the python of an environment with vLLM"),
]
KEY = "a-key-of-the-tests"
SERVED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOG_STATS_INTERVAL": "1"}
NATIVE = offline.NATIVE | SERVED  # for a server that does not route
FOUND_IN = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/vllm/site")])}
ENVIRONMENT = offline.ENVIRONMENT | SERVED | FOUND_IN


def documented_template() -> str:
    """Return the chat template that docs/serving.md has for the embedded pair."""
    text = (ROOT / "docs/serving.md").read_text()
    pattern = r"cat > math\.jinja <<'END'\n(.*?)^END$"
    [template] = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    return template


def documented_chat() -> str:
    """Return the program in docs/serving.md that asks vLLM."""
    text = (ROOT / "docs/serving.md").read_text()
    pattern = r"^```python\n(from openai import OpenAI\n\nquestion .*?)^```$"
    [program, *_] = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    return program


def write_router(folder: Path, slm: Path, **more: Any) -> Path:
    """Write a router of random weights, whose scores differ."""
    folders = PairFolder(slm, LLM)
    card = folders.identity("float32") | more
    write_bundle(folder, random_router(folders.slm.config.hidden_size, slope=3.0), card)
    return folder


def plain(*options: str) -> list[str]:
    """Return the command line of a server of the embedded LLM alone."""
    sizes = "--dtype float32 --enforce-eager --block-size 32 --max-num-seqs 8 --max-model-len 512"
    memory = "--gpu-memory-utilization 0.05"
    line = [str(Path(PYTHON).with_name("vllm")), "serve", str(LLM)]
    return [*line, *sizes.split(), *memory.split(), *options]


def command(settings: dict[str, Any], slm: Path, *options: str) -> list[str]:
    """Return the command line of a server that routes, with these settings of citer."""
    routing = {"speculative": draft_model(slm), "additional": {"citer": settings}}
    pairs = ((f"--{name}-config", json.dumps(value)) for name, value in routing.items())
    return [*plain(*options), *chain.from_iterable(pairs)]


@contextmanager
def routed_server(
    folder: Path, settings: Mapping[str, Any] = {"rule": "risk 0.9 audit 0.1"}, **card: Any
) -> Iterator[str]:
    """Run a server in the block; yield its address. `card` goes onto its router's card."""
    (folder / "chat.jinja").write_text(documented_template())
    slm = wide_slm(folder)
    router = write_router(folder / "router", slm, **card)
    settings = {"router": str(router), "log": str(folder / "log"), **settings}
    port = free_port()
    options = f"--served-model-name llm --host 127.0.0.1 --port {port} --chat-template"
    line = command(settings, slm, "--api-key", KEY, *options.split(), str(folder / "chat.jinja"))
    with serving(line, ENVIRONMENT, f"http://127.0.0.1:{port}", seconds=600):
        yield f"http://127.0.0.1:{port}"


def logged(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a server's log: of its tables, and those that are in none yet."""
    journals = (path.read_text().splitlines()[1:] for path in folder.glob(".*.jsonl"))
    unread = [json.loads(line)["row"] for journal in journals for line in journal]
    return [*read_served(folder, TASKS).to_pylist(), *unread]


def client(url: str, key: str = KEY) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120)


def counters(url: str) -> dict[str, float]:
    """The numbers of citer and vLLM at `/metrics`, summed over their labels but `what`."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            name = " ".join(filter(None, (sample.name, sample.labels.get("what"))))
            sums[name] = sums.get(name, 0) + sample.value
    return sums


def prompts(number: int) -> Sequence[str]:
    return [prompt_text(problem) for problem in questions(number)]
