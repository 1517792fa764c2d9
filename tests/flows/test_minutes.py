"""`citer run --minutes` that is stopped after a choice, under a real Prefect server."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from citer.pairs.budget import Plan
from citer.rule import Rule
from flows.dvc_commands import dvc
from flows.pipeline import retrain
from flows.tracking.registry import promote, run_of
from flows.tracking.restore import restore
from tests.flows.project import commit
from tests.flows.test_worktree_stages import MAKES, OUTS, retraining
from tests.flows.tracking.registered import holder, version, versions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect")]

GOES_ON = "sh -c 'test -f go || exit 2; mkdir -p data/answers; touch data/answers/${item}'"
OF_ROUTERS = ["1", "2"]


@pytest.fixture
def stages(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `choose0` make all files, and `evaluate@k` fail until there is a file `go`."""
    answers, every = "data/answers/${item}", {"foreach": OF_ROUTERS}
    stages = retraining(MAKES)
    stages["choose0"] = {"cmd": MAKES, "deps": ["data/models/slm"], "outs": OUTS}
    stages["evaluate"] = every | {"do": {"cmd": GOES_ON, "deps": OUTS, "outs": [answers]}}
    stages["choose"] = every | {"do": {"cmd": "true", "deps": [answers]}}
    YAML().dump({"stages": stages}, Path("dvc.yaml"))
    commit(project)
    monkeypatch.setattr("flows.pipeline.fit", lambda *_: Plan([], {}))


@pytest.mark.usefixtures("stages")
def test_a_stopped_run_leaves_a_champion_that_needs_no_preferences(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert retrain(minutes=60, return_state=True).is_failed()
    assert "registered so far: citer-router version 1 promoted: " in caplog.text
    assert (versions(), holder("champion")) == ([1], 1)
    assert Rule.parse(version(1).tags["rule"]).by == "entropy"
    restore(1)
    assert "choose0" not in dvc("status")
    promote(1)
    Path("go").touch()
    state = retrain(minutes=60, return_state=True)
    assert state.is_completed(), state.message
    assert "registered so far: nothing new: citer-router version 1" in caplog.text
    assert "registered so far: citer-router version 2 promoted: " in caplog.text
    assert (versions(), holder("champion")) == ([1, 2, 3], 3)
    runs = [run_of(version(number)).data.tags for number in (1, 2, 3)]
    assert [tags["iteration"] for tags in runs] == ["0", "1", "2"]
    parents = [tags["mlflow.parentRunId"] for tags in runs]
    assert parents[0] != parents[1] == parents[2]


@pytest.mark.usefixtures("stages")
def test_a_run_stops_before_an_iteration_that_would_end_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flows.pipeline.fit", lambda *_: Plan([], {"evaluate": 1000}))
    state = retrain(minutes=60, return_state=True)
    assert state.is_failed()
    late = r"stopped before evaluate@1, since router 1 would come after 50\d min"  # 500, and so far
    assert re.search(late, str(state.message))
    assert (versions(), holder("champion")) == ([1], 1)
    assert not Path("data/answers").exists()
