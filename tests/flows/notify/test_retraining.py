"""From a revoked promise to a new champion: real servers, a real worker, the embedded pair."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from ruamel.yaml import YAML

from citer.data.problems import read_problems
from citer.data.traffic import TRAFFIC
from citer.demo import toy
from citer.rule import Rule
from citer.serving.evidence import Evidence
from citer.serving.status import standings
from citer.stages import paths
from flows.dvc_commands import dvc
from flows.notify.events import REVOKED
from tests.flows.prefect_server import Server, prefect_server, running
from tests.flows.project import BIN, commit, copy_repository
from tests.flows.servers import free_port, serving, until

pytestmark = pytest.mark.slow

ASKED = 110  # some 40 of them in validation: with ε = .1, 31 are needed
VERSION = "citer-router/1"
LOG = "data/own/traffic"
FILES = {"train": 200, "validation": 150, "test": 150}  # questions with two goods
NEW = {"train": 0, "validation": 15, "test": 15}  # questions with three goods
SETTINGS: dict[str, dict[str, Any]] = {
    "prepare": {
        "toy": None,
        **{split: [{"path": f"data/own/{split}.jsonl", "task": "math"}] for split in FILES},
        "shares": {"sft": 0.35, "preference": 0.15, "validation": 0.4, "test": 0.1},
        "traffic": [{"path": LOG, "most": 400}],
    },
    "finetune": {"epochs": 23},
    "evaluate": {
        "llm_fractions": [0.9, 1.0],
        "risks": [0.6, 0.9, 0.95],
        "epsilon": 0.1,
        "gammas": [4],
        "against": "llm",
    },
    "register": {"margin": 0.3},  # of few questions
    "serve": {"shadow": 0.25},  # the other answers are in the log at once
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A Prefect server, in a project that retrains when a promise is revoked."""
    folder = tmp_path / "project"
    copy_repository(folder, SETTINGS)
    monkeypatch.chdir(folder)
    yaml = YAML()
    params = yaml.load(Path("params.yaml"))
    yaml.dump(params | {"iterations": {"1": {"previous": "0"}}}, Path("params.yaml"))
    Path(LOG).mkdir()
    commit(folder)
    with prefect_server(tmp_path / "prefect") as server:
        server.prefect("deploy", "--name", "cpu", "--trigger", "flows/notify/retrain.yaml")
        yield server


class Client:
    """OpenAI's client of a server."""

    def __init__(self, url: str) -> None:
        self.openai = OpenAI(base_url=f"{url}/v1", api_key="none")

    def ask(self, question: str) -> dict[str, Any]:
        """Ask a question. Return the version that answered, and its rule."""
        asked: Any = [{"role": "user", "content": question}]
        answer = self.openai.chat.completions.create(model="citer-router", messages=asked)
        return dict((answer.model_extra or {})["citer"])

    def versions(self, questions: Sequence[str]) -> set[str]:
        with ThreadPoolExecutor(16) as threads:
            return {str(each["version"]) for each in threads.map(self.ask, questions)}


def kinds() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return rows of questions about two goods, and about three."""
    rows = [*toy.rows("math", 1500, 17, "pipeline")]
    three = ["one each of" in row["problem"] for row in rows]
    return (
        [row for row, is_new in zip(rows, three, strict=True) if not is_new],
        [row for row, is_new in zip(rows, three, strict=True) if is_new],
    )


def test_a_revoked_promise_ends_in_a_new_champion_that_serves(server: Server) -> None:
    """Another server of the version, of which we write the evidence, sees answers lost."""
    two, three = map(iter, kinds())
    for split, count in FILES.items():
        rows = [*(next(two) for _ in range(count)), *(next(three) for _ in range(NEW[split]))]
        Path(f"data/own/{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    citer = str(BIN / "citer")
    subprocess.run([citer, "run"], env=server.env, check=True)
    url = f"http://127.0.0.1:{(port := free_port())}"
    serve = [citer, "serve", "--router", "models:/citer-router@champion", "--log", LOG]
    serve += ["--port", str(port), "--poll", "1"]
    own = server.env | {"MLFLOW_TRACKING_URI": ""}  # MLflow leaves that of another test in it
    with running(server.env, "worker", "start", "--pool", "cpu"), serving(serve, own, url):
        client = Client(url)
        assert client.versions([next(three)["problem"] for _ in range(ASKED)]) == {VERSION}
        until(lambda: standings(str(paths.EVIDENCE))[VERSION].seen, 300)
        before = standings(str(paths.EVIDENCE))[VERSION]
        assert before.place == 0
        for _ in range(20):
            Evidence(paths.EVIDENCE).add(VERSION, str(before.rule), True, 0.1)
        stricter = str(before.promise.rules[1])
        until(lambda: client.ask("Why?")["rule"] == stricter, 60)
        message = until(lambda: server.ended("cpu"), 1800)["state"]["message"]
        revoked = f"has a promise that traffic revoked (`{stricter}` is in force) and is set aside"
        assert message.startswith(f"citer-router version 2 promoted: the champion {revoked}: ")
        until(lambda: client.ask("Why?")["version"] == "citer-router/2", 60)
        rule = Rule.parse(client.ask("Why?")["rule"])
    [event] = events(server)
    assert event["payload"]["router"] == VERSION
    assert event["payload"]["rule"] == stricter
    now = standings(str(paths.EVIDENCE)).get("citer-router/2")
    assert now is None if rule.exact else now and now.place == 0  # an exact rule promises the text
    check_rows(*re.findall(r"branch (retrain/\S+)", message))


def events(server: Server) -> list[dict[str, Any]]:
    query = {"filter": {"event": {"name": [REVOKED]}}}
    found: list[dict[str, Any]] = server.client.post("/events/filter", json=query).json()["events"]
    return found


def check_rows(branch: str) -> None:
    """The router of a branch learned from traffic, and was judged by it."""
    subprocess.run(["git", "checkout", "--force", branch], check=True)
    dvc("checkout", "--force")
    for split in ("preference", "validation"):
        assert TRAFFIC in {problem.source for problem in read_problems(paths.problems(split))}
