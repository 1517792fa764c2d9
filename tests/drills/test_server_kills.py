"""After the kill of `citer serve` at any moment, the next server gives the same answers.

The log of its answers has only whole tables.
"""

import os
import signal
import time
from pathlib import Path
from random import Random
from threading import Timer

import httpx
import pytest
from prometheus_client import CollectorRegistry

from citer.models.pair import Pair
from citer.serving import log as traffic_log
from citer.serving.log import Traffic
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Release
from citer.serving.server.run import listen, make_server, run
from citer.serving.server.service import Service, Settings
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table
from tests.drills.files import left_aside
from tests.drills.scale import SCALE, SEED, Record
from tests.drills.stages import FORK, PATIENCE_SECONDS
from tests.flows.servers import answers, free_port, until
from tests.server.running import QUESTIONS, Shelf, asked, deployed

pytestmark = pytest.mark.slow

KILLS = 4 * SCALE
ROWS = 2  # of a table, so that many kills fall between two of them


class Served:
    """A server in a process of its own, which logs its answers to a folder."""

    def __init__(self, pair: Pair, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = FORK.Process(target=_serve, args=(pair, port, log))
        self._process.start()
        until(self._healthy, PATIENCE_SECONDS)

    def ask(self, number: int) -> str:
        """Return the text of an answer. Raises httpx.TransportError if the server dies."""
        body = asked(QUESTIONS[number % len(QUESTIONS)])
        reply = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS)
        return str(reply.json()["choices"][0]["message"]["content"])

    def end(self, number: signal.Signals) -> int | None:
        """Send a signal; return the exit status."""
        assert self._process.pid
        os.kill(self._process.pid, number)
        self._process.join(PATIENCE_SECONDS)
        return self._process.exitcode

    def _healthy(self) -> bool:
        assert self._process.is_alive()
        return answers(self.url)


def _serve(pair: Pair, port: int, log: Path) -> None:
    traffic_log.ROWS = ROWS
    traffic = Traffic(log)
    stamp = pair.identity | {"version": "tiny/1"}
    observer = traffic.observer(stamp, pair.tokenizer.decode)
    release = Release("tiny/1", deployed(pair), observer)
    settings = Settings("tiny", 8, poll=60)
    service = Service(settings, Shelf(), release, Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    with listen("127.0.0.1", port) as listener:
        run(make_server(service, []), listener)
    traffic.close()
    os._exit(0)


def test_a_server_after_its_kill_gives_the_same_answers_and_logs_whole_tables(
    kin: Pair, tmp_path: Path, record_property: Record
) -> None:
    log, port = tmp_path / "log", free_port()
    first = Served(kin, port, log)
    begun = time.monotonic()
    expected = [first.ask(number) for number in range(len(QUESTIONS))]
    seconds = time.monotonic() - begun
    assert first.end(signal.SIGTERM) == 0
    answers = 0
    for number in range(KILLS):
        moment = seconds * Random(f"{SEED} {number}").random()
        answers += _until_killed(Served(kin, port, log), moment, expected)
    last = Served(kin, port, log)  # makes tables of what the killed ones left
    assert last.end(signal.SIGTERM) == 0
    tables = [read_table(path, AUDITED) for path in log.glob("*.parquet")]
    logged = sum(map(len, tables)) - len(expected)
    print(f"\n{KILLS} kills, {answers} answers, {logged} logged")
    assert abs(logged - answers) <= KILLS  # a kill loses, or hides from the client, the last one
    assert left_aside(log) == []
    assert not [*log.glob(".*.jsonl")]
    record_property("kills of citer serve", KILLS)


def _until_killed(server: Served, seconds: float, expected: list[str]) -> int:
    """Kill a server after so many seconds of questions. Return the number of its answers."""
    Timer(seconds, server.end, (signal.SIGKILL,)).start()
    count = 0
    try:
        while True:
            assert server.ask(count) == expected[count % len(expected)]
            count += 1
    except httpx.TransportError:
        return count
