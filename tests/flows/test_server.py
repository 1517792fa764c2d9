"""Commands that need Prefect's server, where there is none."""

import re
from collections.abc import Callable
from functools import partial

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from citer.errors import InputError, TemporaryError
from flows.notify.alerts import install
from flows.pipeline import schedule
from flows.server import prefect_page

without_server = partial(temporary_settings, restore_defaults={PREFECT_API_URL})
GONE = "http://127.0.0.1:9/api"


@pytest.mark.parametrize(
    "command", [partial(schedule, "0 3 * * 1"), partial(install, None)], ids=["schedule", "alerts"]
)
@pytest.mark.parametrize(
    ("url", "error", "line"),
    [
        (None, InputError, "PREFECT_API_URL: not set, expected a server's address"),
        ("garbage", InputError, "PREFECT_API_URL: garbage: expected http://HOST:PORT/api"),
        (GONE, TemporaryError, f"Prefect at {GONE}: no answer (ConnectError)"),
    ],
    ids=["not named", "no address", "gone"],
)
def test_a_server_that_is_not_named_or_does_not_answer_is_reported(
    command: Callable[[], None], url: str | None, error: type[InputError], line: str
) -> None:
    named = {PREFECT_API_URL: url} if url else {}
    with (
        without_server(),
        temporary_settings(named),
        pytest.raises(error, match=f"^{re.escape(line)}"),
    ):
        command()


def test_next_steps_name_the_page_of_the_server_in_use() -> None:
    with temporary_settings({PREFECT_API_URL: "http://there:4200/api"}):
        assert prefect_page() == "http://there:4200"
    with without_server():
        assert "prefect server start" in prefect_page()
