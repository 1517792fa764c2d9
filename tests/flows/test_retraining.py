"""The repository's own pipeline under DVC and under the flow, on a tiny pair."""

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient
from ruamel.yaml import YAML

from flows.tracking.store import open_store
from tests.drills.kills import STAGE, part
from tests.flows.project import BIN, commit, run

pytestmark = pytest.mark.slow


def changes(folder: Path, *pathspec: str) -> str:
    """Return the files that git reports as new or changed."""
    return run(folder, "git", "status", "--porcelain", "--untracked-files=all", *pathspec)


@pytest.fixture(scope="module")
def reproduced(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone after `dvc repro`, with its data in a remote and its lock committed."""
    folder = tmp_path_factory.mktemp("reproduced")
    shutil.copytree(clone, folder, dirs_exist_ok=True)
    run(folder, "dvc", "repro")
    assert changes(folder, ".", ":!data/summary") == "?? dvc.lock\n"
    run(folder, "dvc", "remote", "add", "--default", "store", str(folder.with_name("store")))
    run(folder, "dvc", "push")
    commit(folder)
    return folder


def test_a_second_repro_does_nothing(reproduced: Path) -> None:
    assert "Running stage" not in run(reproduced, "dvc", "repro")
    assert changes(reproduced) == ""


def test_dvc_shows_metrics_and_plots(reproduced: Path) -> None:
    heading = run(reproduced, "dvc", "metrics", "show", "--md").splitlines()[0]
    _, *names = (cell.strip() for cell in heading.strip("|").split("|"))
    assert {"llm_accuracy", "cost_b1", "cost_b8_delayed"} < set(names)
    assert len(names) <= 12
    page = Path(run(reproduced, "dvc", "plots", "show").strip().removeprefix("file://"))
    assert "frontier.png" in page.read_text()
    assert '"method": "router_2"' in page.read_text()


def test_a_clone_pulls_the_data_and_an_experiment_runs_only_what_its_parameter_changes(
    reproduced: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "clone"
    run(tmp_path, "git", "clone", "-q", str(reproduced), "clone")
    run(folder, "dvc", "pull")
    assert "Running stage" not in run(folder, "dvc", "repro")
    output = run(folder, "dvc", "exp", "run", "-S", "evaluate.epsilon=0.2")
    again = {*re.findall("Running stage '(.+?)'", output)}
    chosen = {"choose0", "choose@1", "choose@2", "report"}
    assert chosen <= again <= chosen | {"transcribe@1", "transcribe@2"}
    [line] = run(folder, "dvc", "params", "diff").splitlines()[1:]
    assert line.split() == ["params.yaml", "evaluate.epsilon", "0.05", "0.2"]


def test_a_flow_whose_stages_are_killed_gives_the_results_of_dvc_repro(
    clone: Path, reproduced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(clone, folder)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    with (tmp_path / "log").open("w") as log:
        flow = subprocess.Popen([BIN / "citer", "run"], cwd=folder, stdout=log, stderr=log)
    kill_once_unfinished(folder, flow, "finetune")
    kill_once_unfinished(folder, flow, "label")
    assert flow.wait(600) == 0, (tmp_path / "log").read_text()
    assert digests(folder) == digests(reproduced)
    assert (tmp_path / "log").read_text().count("Retry 1/2") == 2
    monkeypatch.chdir(folder)
    client: MlflowClient = open_store("citer").client
    assert client.get_model_version_by_alias("citer-router", "challenger")


def digests(folder: Path) -> dict[str, Any]:
    """Return the digests of every stage's inputs and outputs, from dvc.lock."""
    return YAML(typ="safe").load(folder / "dvc.lock")["stages"]


def kill_once_unfinished(folder: Path, flow: subprocess.Popen[bytes], stage: str) -> None:
    """SIGKILL a stage's command once it has a folder for unfinished work."""
    while not any((folder / "data/.partial" / stage).glob("*")):
        assert flow.poll() is None
        time.sleep(0.01)
    command = next(each for each in _descendants(flow.pid) if part(each) == STAGE)
    command.send_signal(signal.SIGKILL)


def _descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)
