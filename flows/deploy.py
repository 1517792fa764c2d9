"""Run the retraining on a schedule from this machine. prefect.yaml does so on work pools."""

from prefect.client.schemas.schedules import CronSchedule
from pydantic import ValidationError

from citer.errors import InputError
from flows.pipeline import retrain
from flows.server import require_server


def serve(cron: str) -> None:
    """Run `retrain` at the times of `cron`, one at a time, until interrupted.

    Raises InputError if Prefect does not accept `cron`, or if PREFECT_API_URL is not set.
    """
    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"--cron: {cron!r}: expected five fields such as '0 3 * * 1'") from None
    require_server()
    retrain.serve(name="laptop", cron=cron, limit=1, parameters={"worktree": True})
