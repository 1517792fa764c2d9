"""A real `vllm serve` with routing, and OpenAI's client of it."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from citer.config import load_params
from citer.data import toy
from citer.data.importing import parse_row
from citer.data.tasks import prompt_text
from citer.models.bundle import folder_identity, write_bundle
from citer.models.folder import PairFolder
from tests.flows.servers import free_port, serving
from tests.heads import random_router

ROOT = Path(__file__).parents[2]
SLM, LLM = ROOT / "data/pair/slm", ROOT / "data/pair/llm"
PYTHON = os.environ.get("VLLM_PYTHON", "")
KEY = "a key of the tests"
TEMPLATE = "{{ messages[-1]['content'] }}"
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),  # without an installation, citer.egg-info has the entry point
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOG_STATS_INTERVAL": "1",
}


def write_router(folder: Path) -> Path:
    """Write a router of random weights for the embedded pair, whose scores differ."""
    folders = PairFolder(SLM, LLM)
    router = random_router(folders.slm.config.hidden_size, slope=3.0)
    write_bundle(folder, router, folder_identity(folders, "float32"))
    return folder


def command(llm: Path, settings: dict[str, Any] | None, *options: str) -> list[str]:
    """The command line of a server of `llm`; without settings, one without routing."""
    routed = {
        "--speculative-config": {
            "method": "custom_class",
            "model": "citer.vllm.RoutedProposer",
            "num_speculative_tokens": 16,
        },
        "--additional-config": {"citer": settings},
    }
    plain = "--dtype float32 --enforce-eager --block-size 32 --max-num-seqs 8 --max-model-len 512"
    server = [str(Path(PYTHON).with_name("vllm")), "serve", str(llm), *plain.split(), *options]
    if settings is not None:
        server += [part for name, value in routed.items() for part in (name, json.dumps(value))]
    return server


@contextmanager
def routed_server(folder: Path) -> Iterator[str]:
    """Run a server in the block; yield its address. It routes by `risk 0.9 audit 0.1`."""
    (folder / "chat.jinja").write_text(TEMPLATE)
    settings = {
        "router": str(write_router(folder / "router")),
        "slm": str(SLM),
        "rule": "risk 0.9 audit 0.1",
    }
    port = free_port()
    options = f"--served-model-name llm --host 127.0.0.1 --port {port} --chat-template"
    line = command(LLM, settings, "--api-key", KEY, *options.split(), str(folder / "chat.jinja"))
    with serving(line, ENVIRONMENT, f"http://127.0.0.1:{port}", seconds=400):
        yield f"http://127.0.0.1:{port}"


def client(url: str, key: str = KEY) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120)


def counters(url: str) -> dict[str, float]:
    """The counters of citer and vLLM at `/metrics`, summed over their labels but `model`."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            name = " ".join(filter(None, (sample.name, sample.labels.get("model"))))
            sums[name] = sums.get(name, 0) + sample.value
    return sums


def prompts(number: int) -> Sequence[str]:
    """Arithmetic questions as the embedded pair was trained on."""
    prepare = load_params(ROOT / "params.yaml").prepare
    rows = islice(toy.rows("math", number, prepare.seed, "pipeline"), number)
    return [prompt_text(parse_row(row, "math", "reference")) for row in rows]
