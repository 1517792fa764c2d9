"""The flow in a git worktree, under a real Prefect server, with stages of a second."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from citer.config.params import load_params
from citer.stages import paths
from citer.storage.tables import digest, write_text
from flows.dvc_commands import dvc
from flows.pipeline import retrain
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from flows.worktree import git
from tests.flows.project import commit
from tests.flows.servers import until
from tests.flows.test_process_tree import dead
from tests.flows.tracking.registered import holder

pytestmark = pytest.mark.slow

MAKER = f'{sys.executable} -c "from tests.flows.project import retrain; retrain(1)"'
MAKES = f"sh -c 'cp dvc.lock kept; {MAKER}; mv kept dvc.lock'"  # it also writes a dvc.lock
OUTS = ["data/preferences", "data/routers", "data/reports", "data/references", "data/page"]
CODE = (
    "from datetime import timedelta\n"
    "from flows.repro import one_run, reproduce\n"
    "from flows.worktree import in_worktree\n"
    "def both():\n"
    "    with one_run(print):\n"
    "        for stage in ('first', 'second'):\n"
    "            reproduce(stage, timedelta(minutes=5), print)\n"
    "    return 'done'\n"
    "print(in_worktree(both, print))\n"
)


@pytest.fixture(autouse=True)
def no_fork_server() -> Iterator[None]:
    """Each run has a process of its own, and with it a fork server of its own worktree's code."""
    yield
    vars(forkserver)["_forkserver"]._stop()


def use(stages: dict[str, object]) -> None:
    """Make these the stages of the current project, and commit them."""
    YAML().dump({"stages": stages}, Path("dvc.yaml"))
    commit(Path())


def retraining(command: str) -> dict[str, object]:
    """Return a stage for the finetuned SLM, and one that runs `command` for all the rest."""
    slm = str(paths.SLM)
    copies = f"sh -c 'mkdir -p data/models; cp -r data/pair/slm {slm}'"
    return {
        "finetune": {"cmd": copies, "outs": [slm]},
        "evaluate": {"foreach": ["2"], "do": {"cmd": command, "deps": [slm], "outs": OUTS}},
    }


@pytest.mark.usefixtures("prefect")
def test_a_retraining_registers_and_leaves_a_branch_with_its_data(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlruns/mlflow.db")  # of the checkout
    use(retraining(MAKES))
    state = retrain(worktree=True, return_state=True)
    assert state.is_completed(), state.message
    [branch] = git("branch", "--list", "--format=%(refname:lstrip=2)", "retrain/*").splitlines()
    assert f"MLflow's store: sqlite:///{project}/mlruns/mlflow.db; " in str(state.message)
    assert str(state.message).endswith(f"; its results are on branch {branch}")
    assert git("status", "--porcelain", "--untracked-files=all") == ""
    assert not paths.router(2).exists()
    assert len(git("worktree", "list").splitlines()) == 1
    store = open_store(load_params().register_.experiment)
    assert holder("champion") == 1
    place = store.client.get_experiment(store.experiment_id).artifact_location
    assert place == (project / "mlruns/artifacts").as_uri()
    restore(1)  # it compares the preference tables with those of the run
    restored = {out: digest(Path(out)) for out in OUTS}
    git("checkout", "--force", "--quiet", branch)
    dvc("checkout")
    assert dvc("status") == "Data and pipelines are up to date."
    assert {out: digest(Path(out)) for out in OUTS} == restored


def test_a_killed_retraining_goes_on_to_the_same_data(project: Path) -> None:
    once = f"sh -c 'echo ran >> {project}/.dvc/tmp/first; cp params.yaml a'"
    waits = f"sh -c 'echo $$ > {project}/.dvc/tmp/second; cat {project}/.dvc/tmp/go; cp a b'"
    use(
        {
            "first": {"cmd": once, "outs": ["a"]},
            "second": {"cmd": waits, "deps": ["a"], "outs": ["b"]},
        }
    )
    go, second = Path(".dvc/tmp/go"), Path(".dvc/tmp/second")
    go.parent.mkdir(exist_ok=True)
    os.mkfifo(go)  # the second stage waits until it is opened
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    flow = subprocess.Popen([sys.executable, "-c", CODE], env=environment)
    stage = int(until(lambda: second.exists() and second.read_text(), 120))
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    assert dead(stage, 60)
    go.unlink()
    write_text(go, "")
    ended = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    [branch] = git("branch", "--list", "--format=%(refname:lstrip=2)", "retrain/*").splitlines()
    assert Path(".dvc/tmp/first").read_text() == "ran\n"
    assert [folder for folder in Path(".retrain").iterdir() if folder.is_dir()] == []
    git("checkout", "--quiet", branch)
    dvc("checkout")
    assert Path("b").read_bytes() == Path("params.yaml").read_bytes()
