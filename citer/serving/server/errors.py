"""Why a request gets no answer, as a status and OpenAI's error body."""

from collections.abc import Mapping
from typing import Any

from citer.errors import one_line

CLOSE = {"Connection": "close"}  # the rest of the connection is not read


class ApiError(Exception):
    """A request that is not answered. `kind` and `code` are OpenAI's."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(one_line(message))
        self.status, self.kind, self.code, self.headers = status, kind, code, headers

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": str(self), "type": self.kind, "param": None, "code": self.code}
        return {"error": error}


def bad_request(
    message: str,
    status: int = 400,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ApiError:
    return ApiError(status, message, "invalid_request_error", code, headers)


def bad_key() -> ApiError:
    return bad_request("expected a valid key: Authorization: Bearer KEY", 401, "invalid_api_key")


def overloaded(waiting: int) -> ApiError:
    message = f"{waiting} requests wait already; try again later"
    return ApiError(429, message, "rate_limit_error", "queue_full", {"Retry-After": "1"})


def unavailable(message: str) -> ApiError:
    return ApiError(503, message, "server_error", "unavailable")
