"""An LLM that a vLLM server runs, and the server over HTTP."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import sleep
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import AliasPath, BaseModel, Field, FiniteFloat, PositiveInt, ValidationError

from citer.data.prompts import PromptSettings
from citer.errors import InputError, TemporaryError, shown
from citer.models.folder import PLAIN, ModelCard, ModelFolder
from citer.models.size import ModelSize
from citer.progress import warn
from citer.sections import complaint

SUMS = "weights.sha256"  # stands for the weights in a folder that has none
SAMPLE = "Ann has 12 apples; 7/8 of them: \\boxed{10.5}.\n\tÉté, 你好!"
LIKELIEST = 20  # tokens; vLLM's default limit (--max-logprobs)

KEY = "CITER_LLM_API_KEY"  # environment variable
PATIENCE = (1, 2, 4, 8, 16, 32)  # seconds before each further attempt
TIMEOUT = httpx.Timeout(600, connect=10)  # seconds; a long batch of a large model takes minutes
BUSY = {408, 425, 429, 500, 502, 503, 504}  # statuses that may differ at the next attempt
HEADER = re.compile(r"[!-~]*")  # what a key may consist of

Answer = TypeVar("Answer", bound=BaseModel)


class Failure(BaseModel):
    """The form of OpenAI's errors."""

    message: Annotated[str, Field(validation_alias=AliasPath("error", "message"))]


class Server:
    """The server at `url`. `patience` has the seconds to wait before each further attempt.

    The key in the environment variable `CITER_LLM_API_KEY`, if any, is sent with each request.
    """

    def __init__(self, url: str, patience: Sequence[float] = PATIENCE) -> None:
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

    def ask(self, path: str, kind: type[Answer], content: dict[str, Any] | None = None) -> Answer:
        """Post JSON, or get a page if there is no `content`. Return the answer, parsed as `kind`.

        Raises TemporaryError if the server does not answer at the last attempt either, InputError
        if it refuses the request or its answer has another form.
        """
        method = "POST" if content else "GET"
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
                raise TemporaryError(f"{self}: {problem}, expected a running vLLM")
            warn(f"{self}: {problem}; next attempt in {seconds:g} s")
            sleep(seconds)


def _reason(response: httpx.Response) -> str:
    """Describe a refusal in the server's own words, if it has the form of OpenAI's errors."""
    if response.status_code in (401, 403):
        return f"status {response.status_code}, expected the server's API key in {KEY}"
    if response.has_redirect_location:
        return f"status {response.status_code}: moved to {shown(response.headers['location'])}"
    try:
        words = Failure.model_validate_json(response.content).message
    except ValidationError:
        words = shown(response.text)
    return f"status {response.status_code}: {words}"


TOP = AliasPath("logprobs", "top_logprobs", 0)
TokenName = Annotated[str, Field(pattern=r"^token_id:\d+$")]
Chances = dict[int, float]  # log-probabilities, by token id


class Listed(BaseModel):
    """A model, as `/v1/models` lists it. `max_model_len` is vLLM's own field."""

    id: str
    max_model_len: PositiveInt


class Listing(BaseModel):
    data: Annotated[list[Listed], Field(min_length=1)]


class Tokens(BaseModel):
    """The answer of `/tokenize`."""

    tokens: list[int]


class Choice(BaseModel):
    """One prompt's part of a completion."""

    class Chance(BaseModel):
        logprob: FiniteFloat

    likeliest: Annotated[dict[TokenName, FiniteFloat], Field(validation_alias=TOP)]
    prompt_logprobs: list[dict[int, Chance] | None] | None = None

    @property
    def after(self) -> Chances:
        """The likeliest tokens after the prompt."""
        listed = self.likeliest.items()
        return {int(name.removeprefix("token_id:")): each for name, each in listed}

    def of_prompt(self, first: int) -> list[Chances]:
        """The likeliest tokens at each position of the prompt from `first` on, and its own."""
        listed = (self.prompt_logprobs or [])[first:]
        return [{token: each.logprob for token, each in (at or {}).items()} for at in listed]


class Completion(BaseModel):
    """The answer of `/v1/completions`, with the fields that vLLM adds."""

    choices: list[Choice]


@dataclass(frozen=True)
class ServedModel:
    """A model that `server` runs under the name `name`."""

    server: Server
    name: str
    card: ModelCard

    def complete(
        self, prompts: list[list[int]], likeliest: int, of_prompts: bool = False
    ) -> list[Choice]:
        """Return the log-probabilities of the `likeliest` next tokens of each prompt.

        With `of_prompts`, also those of each token in the prompts, without vLLM's prefix cache.
        """
        content = {
            "model": self.name,
            "prompt": prompts,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": likeliest,
            "return_tokens_as_token_ids": True,
        }
        if of_prompts:
            content["prompt_logprobs"] = likeliest
        choices = self.server.ask("/v1/completions", Completion, content).choices
        lengths = [len(choice.prompt_logprobs or ()) for choice in choices]
        expected = [len(prompt) * of_prompts for prompt in prompts]
        if lengths != expected:
            found = f"{shown(lengths)} prompt tokens, expected {shown(expected)}"
            raise InputError(
                f"{self.server}: {len(choices)} choices with log-probabilities of {found}"
            )
        return choices


@dataclass(eq=False)
class ServedFolder(ModelFolder):
    """The folder of an LLM that a vLLM server runs.

    In a folder without weights, `weights.sha256` stands for them in the model's digest: the output
    of `sha256sum *.safetensors` in the server's folder.
    """

    server: Server = field(kw_only=True)

    @cached_property
    def listed(self) -> Listed:
        """The model that the server runs. Raises InputError unless it is the only one."""
        listed = self.server.ask("/v1/models", Listing).data
        if len(listed) > 1:
            names = ", ".join(each.id for each in listed)
            raise InputError(f"{self.server}: serves {names}; expected one model")
        return listed[0]

    @property
    def context(self) -> int:
        """The smaller context of folder and server, which must have room for one more token."""
        return min(super().context, self.listed.max_model_len - 1)

    @cached_property
    def weight_files(self) -> list[Path]:
        """The weights, or the file that stands for them."""
        weights = super().weight_files
        return weights if any(file.exists() for file in weights) else [self.path / SUMS]

    def check(self, *, may_be_quantised: bool = False) -> None:
        """Raise InputError if the folder does not describe a model. Asks no server."""
        self.check_ends()
        ModelSize.of(self.path, "float32")
        if not all(file.is_file() for file in self.weight_files):
            made = "the output of `sha256sum *.safetensors` in the server's folder"
            raise InputError(f"{self}: no weights; expected them, or {SUMS}: {made}")

    def reach(self, dtype: str) -> ServedModel:
        """Return the model. Raises InputError if the server's has another vocabulary."""
        card = ModelSize.of(self.path, dtype).model.card
        card = card._replace(digest=self.digest, context=self.context)
        model = ServedModel(self.server, self.listed.id, card)
        self._check_vocabulary()
        model.complete([[card.vocab_size - 1]], LIKELIEST, of_prompts=True)
        return model

    def _check_vocabulary(self) -> None:
        content = {"model": self.listed.id, "prompt": SAMPLE, "add_special_tokens": False}
        theirs = self.server.ask("/tokenize", Tokens, content).tokens
        ours = self.tokenizer.encode(SAMPLE, add_special_tokens=False)
        if theirs != ours:
            raise InputError(
                f"{self.server}: `{self.listed.id}` has another tokenizer than {self}: "
                f"expected the same ids for {SAMPLE!r}"
            )


def llm_folder(
    path: Path,
    url: str | None,
    settings: PromptSettings = PLAIN,
    patience: Sequence[float] = PATIENCE,
) -> ModelFolder:
    """Return the folder of an LLM that is loaded here, or of one that the server at `url` runs."""
    if url:
        return ServedFolder(path, settings, server=Server(url, patience))
    return ModelFolder(path, settings)
