"""A vLLM server over HTTP. A request is repeated while the server does not answer."""

import os
import re
from collections.abc import Sequence
from functools import cached_property
from time import sleep
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from citer.errors import InputError, TemporaryError, shown
from citer.progress import warn
from citer.sections import complaint

KEY = "CITER_LLM_API_KEY"  # environment variable
PATIENCE = (1, 2, 4, 8, 16, 32)  # seconds before each further attempt
TIMEOUT = httpx.Timeout(600, connect=10)  # seconds; a long batch of a large model takes minutes
BUSY = {408, 425, 429, 500, 502, 503, 504}  # statuses that may differ at the next attempt
UNAUTHORISED = {401, 403}
HEADER = re.compile(r"[!-~]*")  # what a key may consist of

Answer = TypeVar("Answer", bound=BaseModel)


class Failure(BaseModel):
    """The form of OpenAI's errors."""

    class Reason(BaseModel):
        message: str

    error: Reason


class Server:
    """The server at `url`. `patience` has the seconds to wait before each further attempt.

    The key in the environment variable `CITER_LLM_API_KEY`, if any, is sent with each request.
    """

    def __init__(self, url: str, patience: Sequence[float]) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.patience = tuple(patience)

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[type["Server"], tuple[Any, ...]]:
        """Pickle the settings only: a process needs connections of its own."""
        return Server, (self.url, self.patience)

    @cached_property
    def _client(self) -> httpx.Client:
        key = os.environ.get(KEY, "")
        if not HEADER.fullmatch(key):  # httpx would print it
            raise InputError(f"{KEY}: expected ASCII characters without white space")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    def get(self, path: str, kind: type[Answer]) -> Answer:
        """Get a page, parsed as `kind`. Raises as `post` does."""
        return self._ask("GET", path, None, kind)

    def post(self, path: str, content: dict[str, Any], kind: type[Answer]) -> Answer:
        """Post JSON and return the answer, parsed as `kind`.

        Raises TemporaryError if the server does not answer at the last attempt either, InputError
        if it refuses the request or its answer has another form.
        """
        return self._ask("POST", path, content, kind)

    def _ask(self, method: str, path: str, content: Any, kind: type[Answer]) -> Answer:
        response = self._insist(self._client.build_request(method, path, json=content))
        if not response.is_success:
            raise InputError(f"{self}{path}: {_reason(response)}")
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            expected = "expected an answer of vLLM"
            raise InputError(f"{self}{path}: {complaint(error)}; {expected}") from None

    def _insist(self, request: httpx.Request) -> httpx.Response:
        """Send a request until it is answered or refused. Warn before each further attempt."""
        waits = iter(self.patience)
        while True:
            try:
                response = self._client.send(request)
                if response.status_code not in BUSY:
                    return response
                problem = _reason(response)
            except httpx.RequestError as error:
                problem = f"no answer ({str(error) or type(error).__name__})"
            seconds = next(waits, None)
            if seconds is None:
                raise TemporaryError(f"{self}: {problem}, expected a running vLLM (pair.llm_url)")
            warn(f"{self}: {problem}; next attempt in {seconds:g} s")
            sleep(seconds)


def _reason(response: httpx.Response) -> str:
    """Describe a refusal in the server's own words, if it has the form of OpenAI's errors."""
    if response.status_code in UNAUTHORISED:
        return f"status {response.status_code}, expected the server's API key in {KEY}"
    if response.has_redirect_location:
        return f"status {response.status_code}: moved to {shown(response.headers['location'])}"
    try:
        words = Failure.model_validate_json(response.content).error.message
    except ValidationError:
        words = shown(response.text)
    return f"status {response.status_code}: {words}"
