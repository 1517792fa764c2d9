"""Compare `citer serve` under many clients with one batch call of the same questions.

    python -m benchmarks.serving        # after `citer run`, in the project's folder

Writes `benchmarks/results/serving.{json,md}`. The server is a process of its own. The batch call
(`Deployment.replies`) and the clients run in this process. They take turns, and a ratio is the
median of the rounds' ratios. Each client asks its next question when its last one is answered.
A second server also answers some requests by the LLM alone (`serve.shadow`). At the end, many more
requests show whether the first one's memory grows.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.report import RESULTS, Race, command, machine, markdown, race, write_results
from citer.config.params import load_params
from citer.data.problems import Problem, read_problems
from citer.decoding.engine import Engine
from citer.errors import InputError
from citer.progress import progress
from citer.rule import LLM, Rule
from citer.serving.deployment import Deployment, deploy, served_pair
from citer.stages import paths
from citer.storage.tables import read_json, write_json

ROUTER = paths.router(2)
PORT = 8960
CLIENTS = 32
QUESTIONS = 256
REQUESTS = 5000  # for the memory
SHADOW = 0.01  # share of requests that the second server shadows
WORDS = {
    "throughput": f"answers per second: {CLIENTS} clients / a batch call of {CLIENTS} at a time",
    "to the largest batch": "the same / a batch call of all slots at a time",
    "streamed": f"{CLIENTS} clients with streams / a batch call of {CLIENTS} at a time",
    "p99 / p50": "seconds of a request, 99th percentile / median",
    "shadowed": f"99th percentile of seconds: with serve.shadow {SHADOW} / without",
    "memory": f"resident memory after {REQUESTS:,} requests / after a fifth of them",
}


@dataclass
class Clients:
    """Clients of one server, and what they saw without streams: seconds by round, and texts."""

    url: str
    model: str
    rounds: list[list[float]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def ask(self, questions: Sequence[str], stream: bool = False) -> float:
        """Ask all questions and return their number."""
        self.rounds += [] if stream else [[]]
        asyncio.run(self._ask(iter(questions), stream))
        return len(questions)

    async def _ask(self, questions: Iterator[str], stream: bool) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=600) as client:
            await asyncio.gather(*(self._client(client, questions, stream) for _ in range(CLIENTS)))

    async def _client(
        self, client: httpx.AsyncClient, questions: Iterator[str], stream: bool
    ) -> None:
        for question in questions:
            body = {"model": self.model, "messages": [{"role": "user", "content": question}]}
            started = time.perf_counter()
            reply = await client.post("/v1/chat/completions", json=body | {"stream": stream})
            reply.raise_for_status()
            if not stream:
                self.rounds[-1].append(time.perf_counter() - started)
                self.texts[question] = reply.json()["choices"][0]["message"]["content"]


@contextmanager
def served(rule: Rule, folder: Path = Path(), port: int = PORT) -> Iterator[tuple[str, int]]:
    """Run `citer serve` in a folder inside the block. Yields its address and its process id."""
    program = "from citer.cli.main import main; main()"
    options = ["--router", str(ROUTER), "--rule", str(rule), "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-c", program, "serve", *options], cwd=folder)
    url = f"http://127.0.0.1:{port}"
    try:
        while not _healthy(url):
            if process.poll() is not None:
                raise InputError(f"citer serve ended with {process.returncode}")
            time.sleep(0.5)
        yield url, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextmanager
def shadowing(rule: Rule) -> Iterator[tuple[str, int]]:
    """Run a server in a project like this one, where the rule has a promise that is watched."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for needed in (ROUTER, paths.SLM, Path(load_params().pair.llm)):
            shutil.copytree(needed, folder / needed)
        path = [str(rule), str(LLM)]
        promise = {"path": path, "graded": 0.99, "same": 0.99, "delta": 0.05}  # no step back
        card = folder / ROUTER / "router.json"
        write_json(card, read_json(card) | {"promise": promise})
        params = Path("params.yaml").read_text("utf-8")
        (folder / "params.yaml").write_text(params.replace("shadow: 0 ", f"shadow: {SHADOW} "))
        with served(rule, folder, PORT + 1) as found:
            yield found


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


def growth(clients: Clients, questions: Sequence[str], pid: int) -> list[int]:
    """Send `REQUESTS` in five parts. Return the server's memory after each, in bytes."""
    endless, sizes = cycle(questions), []
    with progress("memory", REQUESTS, "requests") as advance:
        for _ in range(5):
            advance(clients.ask(list(islice(endless, REQUESTS // 5))))
            sizes.append(psutil.Process(pid).memory_info().rss)
    return sizes


def measure(
    deployment: Deployment,
    problems: Sequence[Problem],
    clients: Clients,
    shadowed: Clients,
    pid: int,
) -> dict[str, Any]:
    questions = [problem.question for problem in problems]
    own: dict[str, str] = {}
    whole = deployment.engine
    slots, longest = min(CLIENTS, whole.slots), whole.limits.max_new_tokens
    engine = Engine(deployment.pair, slots, longest, whole.delayed)
    narrow = replace(deployment, engine=engine)

    def batch(made: Deployment) -> float:
        own.update((r.problem.question, r.completion) for r in made.replies(problems))
        return len(problems)

    for each in (clients, shadowed):
        each.ask(questions)  # the first requests fill caches of the allocator and the tokenizer
        each.rounds.clear()
    timed = race(
        "serving",
        {
            "batch": lambda: batch(narrow),
            "largest batch": lambda: batch(deployment),
            "clients": lambda: clients.ask(questions),
            "shadowed": lambda: shadowed.ask(questions),
            "streams": lambda: clients.ask(questions, stream=True),
        },
    )
    rounds = list(clients.rounds)
    slow, usual = (np.quantile(np.concatenate(each.rounds), 0.99) for each in (shadowed, clients))
    sizes = growth(clients, questions, pid)
    return _result(timed, rounds, sizes) | {
        "shadowed": slow / usual,
        "equal answers": sum(own[each] == clients.texts[each] for each in own) / len(own),
    }


def _result(timed: Race, rounds: Sequence[list[float]], sizes: Sequence[int]) -> dict[str, Any]:
    quantiles = np.array([np.quantile(seconds, [0.5, 0.99]) for seconds in rounds])
    middle, tail = np.median(quantiles, 0)
    return {
        "throughput": timed.ratio("clients", "batch"),
        "to the largest batch": timed.ratio("clients", "largest batch"),
        "streamed": timed.ratio("streams", "batch"),
        "p99 / p50": float(np.median(quantiles[:, 1] / quantiles[:, 0])),
        "memory": sizes[-1] / sizes[0],
        "answers per second": {name: timed.speed(name) for name in timed.speeds},
        "seconds": {"p50": float(middle), "p99": float(tail)},
        "MiB": [size // 1024 for size in sizes],
    }


def main() -> None:
    """Measure a server and a batch call of the last run's router, and write the result."""
    params = load_params()
    rule = Rule(**read_json(paths.report(2) / "threshold.json")["rule"])
    asked = [p for p in read_problems(paths.referenced("test")) if not p.choices][:QUESTIONS]
    folders, slots = served_pair(ROUTER, params.pair), params.decode.slots
    deployment = deploy(ROUTER, folders, params.pair, rule, params.decode)
    with served(rule) as (url, pid), shadowing(rule) as (other, _):
        crowd, shadowed = (Clients(each, params.register_.model_name) for each in (url, other))
        result = measure(deployment, asked, crowd, shadowed, pid)
    setting = {"clients": CLIENTS, "questions": len(asked), "requests": REQUESTS, "slots": slots}
    result |= {"setting": setting | {"rule": str(rule)}, "machine": machine()}
    figures = [{"figure": words, "value": result[name]} for name, words in WORDS.items()]
    write_results(RESULTS / "serving", result, markdown(figures))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    command(main)
