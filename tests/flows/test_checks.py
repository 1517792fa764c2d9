import re

import pytest

from citer.errors import InputError
from flows.checks import check_cron, check_target


@pytest.mark.parametrize("target", ["http://", "ftp://there/x", "nonsense", "http://[x", "a/b/c"])
def test_a_target_that_is_no_address_and_no_block_is_refused(target: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(target)}: expected http://"):
        check_target(target)


@pytest.mark.parametrize("target", ["http://host", "https://host/x?y=1", "slack-webhook/team"])
def test_an_address_or_a_block_is_a_target(target: str) -> None:
    check_target(target)


@pytest.mark.parametrize(
    "cron", ["", "tomorrow", "0 3 * *", "0 0 3 * * 1", "61 3 * * 1", "0 0 31 2 *", "0 3 * * x"]
)
def test_an_invalid_cron_string_is_refused(cron: str) -> None:
    with pytest.raises(InputError, match=f"^--cron: {re.escape(repr(cron))}: expected five fields"):
        check_cron(cron)


@pytest.mark.parametrize("cron", ["0 3 * * 1", "*/5 * * * *", "0 0 1,15 * *", "0 0 L * mon-fri"])
def test_a_cron_string_is_accepted(cron: str) -> None:
    check_cron(cron)
