"""Why a request gets no answer, and who may ask.

Those who own a key may; without keys, programs on this machine. Any web page can make its reader's
browser send requests. The browser names the page's site in `Origin`. If the site's DNS says that
its name is this machine (DNS rebinding), that name is in `Host`. A page cannot send a key that it
does not know.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import Request

from citer.errors import one_line

Check = Callable[[Request], Awaitable[None]]  # raises ApiError
CLOSE = {"Connection": "close"}  # the rest of the connection is not read
OWN = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)


class ApiError(Exception):
    """A request that is not answered. `kind` and `code` are OpenAI's."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(one_line(message))
        self.status, self.kind, self.code, self.headers = status, kind, code, headers

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": str(self), "type": self.kind, "param": None, "code": self.code}
        return {"error": error}


async def one_length(request: Request) -> None:
    """Refuse a body with two lengths: a proxy may end it where this server does not."""
    if {"content-length", "transfer-encoding"} <= set(request.headers):
        message = "Content-Length: given with Transfer-Encoding, expected one of both"
        raise ApiError(400, message, headers=CLOSE)


def has_key(keys: Sequence[str]) -> Check:
    known = [f"Bearer {key}".encode() for key in keys]

    async def check(request: Request) -> None:
        given = request.headers.get("authorization", "").encode("latin-1")
        if known and not any(hmac.compare_digest(given, each) for each in known):
            message = "expected a valid key: Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key")

    return check


async def from_here(request: Request) -> None:
    """Refuse whoever does not call this machine by its own address."""
    asked, origin = request.headers.get("host", ""), request.headers.get("origin")
    expected = "expected localhost, or CITER_API_KEYS in the server's environment"
    if not OWN.fullmatch(asked):
        raise ApiError(403, f"Host: {asked!r}; {expected}")
    if origin is not None and origin.partition("://")[2] != asked:
        raise ApiError(403, f"Origin: {origin!r}; {expected}")
