"""Run the retraining on a schedule from this machine. prefect.yaml does so on work pools."""

from prefect.client.schemas.schedules import CronSchedule
from prefect.settings import get_current_settings
from pydantic import ValidationError

from citer.errors import InputError
from flows.pipeline import retrain

# The variables turn telemetry off.
START_SERVER = "PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1 prefect server start"


def serve(cron: str) -> None:
    """Run `retrain` at the times of `cron`, one at a time, until interrupted.

    Raises InputError if `cron` is not a cron string, or if PREFECT_API_URL is not set.
    """
    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"--cron: {cron!r}: expected five fields such as '0 3 * * 1'") from None
    if not get_current_settings().api.url:
        raise InputError(
            f"PREFECT_API_URL: not set, expected a server's address; `{START_SERVER}` starts one"
            " at http://127.0.0.1:4200/api"
        )
    retrain.serve(name="laptop", cron=cron, limit=1, parameters={"worktree": True})
