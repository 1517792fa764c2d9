"""The bodies of requests, checked: what OpenAI's API calls a field and citer can honour."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from citer.config.params import SamplingParams
from citer.data.importing import parse_question
from citer.data.problems import Problem
from citer.data.tasks.rows import RowError
from citer.errors import InputError, shown
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from citer.sections import Section, Tokens, complaint

# Fields that change no answer.
IGNORED = {"metadata", "prompt_cache_key", "prompt_cache_retention", "service_tier", "store"}
# Fields that would change the answer, with the values at which they do not.
NEUTRAL: Mapping[str, Sequence[Any]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_p": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _single(given: Any) -> Any:
    return given[0] if isinstance(given, list) and len(given) == 1 else given


TURNS = 4096  # of a chat; each is checked by itself, while other requests wait
StopText = Annotated[str, Field(min_length=1, max_length=256)]
StopTexts = Annotated[list[StopText], Field(max_length=16), BeforeValidator(_listed)]


class Routing(Section):
    """The field `citer` of a body."""

    rule: str | None = None  # in place of the router's own
    task: str | None = None  # of the question
    # The right one, if known: a shadowed request is then judged by it. To read a long one would
    # hold up all others.
    answer: Annotated[str, Field(max_length=10_000)] | None = None
    written: bool = False  # whether a stream says who wrote each token


class StreamOptions(BaseModel):
    include_usage: bool = False


class Asked(BaseModel):
    """What both kinds of request have."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**24)] | None = None
    seed: int | None = None  # without one, equal requests get different samples
    stop: StopTexts | None = None
    user: str | None = None
    safety_identifier: str | None = None
    citer: Routing = Routing()

    @property
    def limit(self) -> int | None:
        return self.max_tokens

    @property
    def rule(self) -> Rule | None:
        """Raises InputError."""
        try:
            return None if self.citer.rule is None else Rule.parse(self.citer.rule)
        except ValueError as error:
            raise InputError(f"citer.rule: {error}") from None

    def sampler(self, default: SamplingParams | None) -> Sampler:
        """Return how to sample; `default` has settings that are not given. Raises InputError."""
        given = self.model_dump(include={"temperature", "top_k", "top_p"}, exclude_none=True)
        settings = (default.model_dump(exclude_none=True) if default else {}) | given
        top_k, top_p = settings.pop("top_k", 0), settings.pop("top_p", 1.0)
        limited = ({"top_k": top_k} if top_k > 0 else {}) | ({"top_p": top_p} if top_p < 1 else {})
        if settings.get("temperature"):
            seed = secrets.randbits(32) if self.seed is None else self.seed
            return Sampler(SamplingParams(**settings, **limited), seed)
        if limited and "temperature" not in settings:
            raise InputError(f"{next(iter(limited))}: expected a temperature, too")
        return ALL_GREEDY


class Chat(Asked):
    """A body of `/v1/chat/completions`."""

    messages: Annotated[list[Any], Field(max_length=TURNS)]
    max_completion_tokens: Tokens | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def characters(self) -> int:
        """The characters of all turns as they came."""
        turns = (_plain(message) for message in self.messages)
        texts = (turn.get("content") for turn in turns if isinstance(turn, dict))
        return sum(len(text) for text in texts if isinstance(text, str))

    def problem(self, tasks: Sequence[str]) -> Problem:
        """Return the question as the router was trained on it. Raises InputError."""
        task = self.citer.task
        row: dict[str, Any] = {"messages": list(map(_plain, self.messages))}
        if task and task not in tasks:
            raise InputError(f"citer.task: {task!r}; expected {', '.join(map(repr, tasks))}")
        row |= {"task": task} if task else {}
        problem = parse_question(row, tasks)
        try:
            answer = self.citer.answer
            return problem if answer is None else parse_question(row, tasks, answer)
        except RowError as error:
            raise RowError("citer.answer", error.found, error.expected) from None


class Completion(Asked):
    """A body of `/v1/completions`."""

    prompt: Annotated[str, BeforeValidator(_single)]

    @property
    def characters(self) -> int:
        return len(self.prompt)


Body = Chat | Completion


def read(kind: type[Body], body: bytes) -> Body:
    """Check a body. Raises InputError for a field that is wrong or not supported."""
    try:
        asked = kind.model_validate_json(body)
    except ValidationError as error:
        raise InputError(complaint(error)) from None
    if asked.citer.written and not asked.stream:
        raise InputError("citer.written: True; expected `stream`, too")
    if isinstance(asked, Chat) and asked.max_tokens and asked.max_completion_tokens:
        raise InputError("max_tokens: given besides max_completion_tokens; expected one of both")
    for name, value in (asked.model_extra or {}).items():
        if name == "logprobs" and value is not None and value is not False:
            raise InputError("logprobs: not supported; `vllm serve` has them (docs/serving.md)")
        if name not in IGNORED and value is not None and value not in NEUTRAL.get(name, ()):
            expected = " or ".join(map(repr, NEUTRAL.get(name, ())))
            hint = f"expected {expected}" if expected else "not a field that is supported"
            raise InputError(f"{name}: {shown(value)}: {hint}")
    return asked


def _plain(message: Any) -> Any:
    """Return a message with its text in one piece; clients may send it as a list of parts.

    OpenAI's newer name of the role `system` is `developer`. What no prompt has is left out. A page
    break counts as a line break: in a data file it is a damaged escape.
    """
    if not isinstance(message, dict):
        return message
    message = {k: v for k, v in message.items() if k != "name" and (v != [] or k == "content")}
    if message.get("role") == "developer":
        message |= {"role": "system"}
    content = message.get("content")
    if isinstance(content, list) and all(map(_is_text, content)):
        content = "".join(part["text"] for part in content)
    if isinstance(content, str):
        content = content.replace("\f", "\n")
    return message | {"content": content}


def _is_text(part: Any) -> bool:
    if not isinstance(part, dict) or part.keys() - {"cache_control"} != {"type", "text"}:
        return False
    return part["type"] == "text" and isinstance(part["text"], str)
