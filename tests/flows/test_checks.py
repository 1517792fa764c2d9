import re

import pytest

from citer.errors import InputError
from flows.checks import check_target


@pytest.mark.parametrize("target", ["http://", "ftp://there/x", "nonsense", "http://[x", "a/b/c"])
def test_a_target_that_is_no_address_and_no_block_is_refused(target: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(target)}: expected http://"):
        check_target(target)


@pytest.mark.parametrize("target", ["http://host", "https://host/x?y=1", "slack-webhook/team"])
def test_an_address_or_a_block_is_a_target(target: str) -> None:
    check_target(target)
