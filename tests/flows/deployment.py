"""Deploy a project of one stage with prefect.yaml."""

import sys
from pathlib import Path

from ruamel.yaml import YAML

from tests.flows.prefect_server import ROOT, Server
from tests.flows.servers import until

MONDAYS, NEVER = "0 3 * * 1", "0 0 29 2 *"

RETRAINS = f"{sys.executable} -c 'from tests.flows.project import retrain; retrain({{}})'"
HANGS = f"sh -c '{sys.executable} launcher.py 600 > rank'"


def deploy(server: Server, command: str, cron: str = NEVER, **variables: str) -> None:
    """Deploy the current project with prefect.yaml; its only stage runs `command`.

    The deployment gpu uses the CPU, since most machines that run tests have no GPU.
    """
    stage = {"foreach": ["1"], "do": {"cmd": command}}
    YAML().dump({"stages": {"evaluate": stage}}, Path("dvc.yaml"))
    text = (ROOT / "prefect.yaml").read_text()
    changes = {MONDAYS: cron, "device: cuda": "device: cpu"}
    changes["worktree: true"] = "worktree: false"  # dvc.yaml is not committed
    for there, here in changes.items():
        assert there in text
        text = text.replace(there, here)
    Path("prefect.yaml").write_text(text)
    server.prefect("deploy", "--all", **variables)


def rank() -> int:
    """Wait for the launcher's rank and return its process id."""
    return int(until(lambda: Path("rank").exists() and Path("rank").read_text(), 300))
