"""Who may ask: owners of a key; without keys, whoever calls this server by its own address.

Any web page can make its reader's browser send requests. The browser names the page's site in
`Origin`. If the site's DNS says that its name is this machine (DNS rebinding), that name is in
`Host`. A page cannot send a key that it does not know.
"""

import hmac
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request

from citer.serving.server.errors import CLOSE, bad_key, bad_request

Check = Callable[[Request], Awaitable[None]]  # raises ApiError
ANYWHERE = "0.0.0.0"


async def one_length(request: Request) -> None:
    """Refuse a body with two lengths: a proxy may end it where this server does not."""
    if {"content-length", "transfer-encoding"} <= set(request.headers):
        message = "Content-Length: given with Transfer-Encoding, expected one of both"
        raise bad_request(message, headers=CLOSE)


def has_key(keys: Sequence[str]) -> Check:
    known = [f"Bearer {key}".encode() for key in keys]

    async def check(request: Request) -> None:
        given = request.headers.get("authorization", "").encode("latin-1")
        if known and not any(hmac.compare_digest(given, each) for each in known):
            raise bad_key()

    return check


def own_address(host: str) -> Check:
    """Return a check for a server that listens on `host`.

    If that is every address of the machine, proxies and forwarded ports may have others, so that
    `Host` may be any address. Rebinding needs a name.
    """
    names = {"localhost", "127.0.0.1", "::1", host.lower(), socket.gethostname().lower()}

    async def check(request: Request) -> None:
        asked, origin = request.headers.get("host", ""), request.headers.get("origin")
        name = _name(asked)
        if name not in names and not (host == ANYWHERE and _is_address(name)):
            raise _foreign("Host", asked)
        if origin is not None and origin.partition("://")[2] != asked:
            raise _foreign("Origin", origin)

    return check


def _foreign(header: str, value: str) -> Exception:
    expected = "expected this server's own address, or CITER_API_KEYS in its environment"
    return bad_request(f"{header}: {value!r}; {expected}", 403)


def _name(address: str) -> str:
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False
