"""Prefect's server: whether there is one, and how to start one."""

from prefect.settings import get_current_settings

from citer.errors import InputError

# Without telemetry, and closed to pages of other sites: they could start commands.
START_SERVER = (
    "DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false "
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS=http://127.0.0.1:4200 prefect server start"
)


def has_server() -> bool:
    """Return whether PREFECT_API_URL is set. Without it, Prefect would start a server."""
    return bool(get_current_settings().api.url)


def require_server() -> None:
    """Raise InputError if PREFECT_API_URL is not set."""
    if not has_server():
        raise InputError(
            f"PREFECT_API_URL: not set, expected a server's address; `{START_SERVER}` starts one"
            " at http://127.0.0.1:4200/api"
        )
