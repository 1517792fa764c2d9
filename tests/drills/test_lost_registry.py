"""A registration whose MLflow server dies, or during which somebody promotes, ends in order."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from traceback import format_exc

import pytest

from citer.errors import InputError
from flows.tracking.registry import promote
from flows.tracking.store import open_store
from tests.drills.scale import SCALE, SEED, Record
from tests.drills.stages import FORK
from tests.flows.project import register, register_new, retrain
from tests.flows.servers import NO_JOBS, answers, free_port, until
from tests.flows.tracking.registered import DATE, holder, version, versions

pytestmark = pytest.mark.slow

HASTY = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0"}
LOST = re.compile(r"citer: MLflow at (http://127.0.0.1:\d+): API request to \1\S+ failed\n")
SHARES = [Random(f"{SEED} {n}").random() for n in range(max(1, SCALE // 2))]


class MlflowServer:
    """A server with a store of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._command = [
            *(sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)),
            *("--backend-store-uri", f"sqlite:///{folder}/server.db"),
            *("--artifacts-destination", str(folder / "server")),
        ]

    def start(self) -> None:
        env = os.environ | NO_JOBS
        self._process = subprocess.Popen(self._command, env=env, start_new_session=True)
        until(lambda: answers(self.url), 180)

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path)
    server.start()
    for name, value in (HASTY | {"MLFLOW_TRACKING_URI": server.url}).items():
        monkeypatch.setenv(name, value)
    yield server
    server.kill()


@pytest.mark.parametrize("share", SHARES)
def test_a_registration_whose_server_is_killed_says_so_and_is_completed_later(
    project: Path,
    server: MlflowServer,
    share: float,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    first = Child(partial(register_new, 1))
    assert first.ended() == (0, "")
    second = Child(partial(register_new, 2))
    time.sleep(share * first.seconds)
    server.kill()
    status, said = second.ended()
    server.start()
    for name in HASTY:  # it is not killed again, so the client may be patient
        monkeypatch.delenv(name)
    with capsys.disabled():
        print(f"\nMLflow killed at {share:.0%} of {first.seconds:.1f} s: {status}, {said}", end="")
    assert status == 0 or LOST.fullmatch(said)
    ended = Child(partial(register_new, 2)).ended()
    if ended[0]:  # not explained: beside other tests, an artifact may be missing once
        ended = Child(partial(register_new, 2)).ended()
    assert ended == (0, "")
    open_store("citer")
    assert (versions(), holder("champion")) == ([1, 2, 3, 4], 4)
    assert re.fullmatch(f"{DATE} made the champion by the gate", version(4).tags["history"])
    assert version(2).tags["history"].count("replaced by version 4") == 1
    record_property("kills of MLflow's server", 1)


def test_a_promotion_during_a_registration_leaves_one_champion(
    project: Path, record_property: Record
) -> None:
    for seed in (1, 2):
        register_new(seed)
    retrain(3)
    both = [Child(register), Child(partial(promote, 2))]
    assert [child.ended() for child in both] == [(0, ""), (0, "")]
    champion = holder("champion")
    assert champion in (2, 6)
    crowned = [number for number in versions() if ends_as_champion(number)]
    assert crowned == [champion]
    register()
    assert (versions(), holder("champion")) == ([1, 2, 3, 4, 5, 6], champion)
    record_property("promotions during a registration", 1)


def ends_as_champion(number: int) -> bool:
    *_, last = version(number).tags.get("history", "").split("; ")
    return re.fullmatch(f"{DATE} made the champion by (the gate|hand)", last) is not None


class Child:
    """Work in a process of its own. `seconds` is how long it took, once it has ended."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._receiver, sender = FORK.Pipe(duplex=False)
        self._begun = time.monotonic()
        self._process = FORK.Process(target=_run, args=(work, sender))
        self._process.start()

    def ended(self) -> tuple[int | None, str]:
        """Wait for the end. Return the exit status and what the operator saw of an error."""
        said = self._receiver.recv()
        self._process.join()
        self.seconds = time.monotonic() - self._begun
        return self._process.exitcode, said


def _run(work: Callable[[], object], sender: Connection) -> None:
    try:
        work()
        said = ""
    except InputError as error:
        said = f"citer: {error}\n"
    except BaseException:
        said = format_exc()
    sender.send(said)
    os._exit(bool(said))
