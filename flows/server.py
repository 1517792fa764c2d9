"""Prefect's server: whether there is one and answers, where its page is, how to start one."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.settings import get_current_settings

from citer.errors import InputError, TemporaryError

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


@contextmanager
def answering() -> Iterator[None]:
    """Raise TemporaryError for an error of HTTP, InputError if PREFECT_API_URL is no address."""
    try:
        yield
    except httpx.UnsupportedProtocol:
        address = get_current_settings().api.url
        raise InputError(f"PREFECT_API_URL: {address}: expected http://HOST:PORT/api") from None
    except httpx.HTTPError as error:
        said = f"no answer ({type(error).__name__}); start it and repeat the command"
        if isinstance(error, httpx.HTTPStatusError):
            said = f"status {error.response.status_code} for {error.request.url.path}"
            said += "; set PREFECT_API_AUTH_STRING" * (error.response.status_code == 401)
        raise TemporaryError(f"Prefect at {get_current_settings().api.url}: {said}") from None


def prefect_page() -> str:
    """Return where Prefect's page is: a server's address, or how to start one."""
    if has_server():
        return str(get_current_settings().ui_url)
    then = "then set PREFECT_API_URL to the address that it prints, and repeat: citer run"
    return f"run: {START_SERVER}\n               {then}"
