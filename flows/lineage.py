"""Where a retraining comes from: the code, the data's lock file, and Prefect's run."""

import subprocess

from prefect.runtime import deployment, flow_run
from prefect.utilities.urls import url_for

from flows.dvc_commands import LOCK, PARAMS, file_md5

NO_GIT = "no repository"


def lineage() -> dict[str, str]:
    """Identify the code. Lock and parameters are artifacts of the run and never count as dirty."""
    sha = _git("rev-parse", "HEAD") or NO_GIT
    changed = _git("status", "--porcelain", "--", ".", f":!{LOCK}", f":!{PARAMS}", ":!data")
    return {
        "git_sha": sha,
        "git_dirty": str(bool(changed)).lower(),
        "dvc_lock": file_md5(LOCK),
        "mlflow.source.git.commit": sha,
    }


def run_name() -> str:
    """Name Prefect's run, such as `2026-11-23 03:00 2ad6fe5 gpu`: start in UTC, commit, deployment.

    The commit is that of the current folder. A run without a deployment is one of `citer run`.
    """
    commit = _git("rev-parse", "--short", "HEAD") or "no commit"
    start = flow_run.scheduled_start_time
    return f"{start:%Y-%m-%d %H:%M} {commit} {deployment.name or 'citer run'}"


def run_tags() -> dict[str, str]:
    """Identify Prefect's run, with its address if there is a server. Empty outside a run."""
    if not flow_run.id:
        return {}
    page = url_for("flow-run", flow_run.id)
    return {"prefect_run": flow_run.id} | ({"prefect_page": page} if page else {})


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()
