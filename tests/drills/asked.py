"""Requests to `citer serve` and rows for the served model, damaged with a seeded generator."""

import copy
import json
from random import Random
from typing import Any, NamedTuple

from tests.drills.fuzz import TEXTS, VALUES, changed, places

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PATHS = (CHAT, TEXT, "/v1/models", "/health", "/metrics", "/v1/", "/", "/v1/chat/completions/x")
METHODS = ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
TURN = {"role": "user", "content": "Ann has 3 bags of 6 apples. How many?"}
PARTS = [{"type": "text", "text": "Ann has 2 "}, {"type": "text", "text": "apples. How many?"}]
ROUTED = {"citer": {"rule": "risk 0.5 audit 0.3", "task": "math"}}
SAMPLED = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 3}
COMMON: dict[str, Any] = {"model": "tiny", "max_tokens": 4}
CHATS: tuple[dict[str, Any], ...] = (
    {"messages": [TURN]},
    {"messages": [TURN], "logprobs": False, "stop": ["a", "b"], **SAMPLED},
    {"messages": [{"role": "user", "content": PARTS}], "n": 1, "user": "me", **ROUTED},
    {"messages": [TURN], "stream": True, "stream_options": {"include_usage": True}},
)
COMPLETIONS: tuple[dict[str, Any], ...] = (
    {"prompt": "Ann has 3 bags.", "stop": "."},
    {"prompt": "Ann", **SAMPLED},
    {"prompt": ["Ann"], "stream": True, **ROUTED},
)
KINDS = ("", "text/plain", "application/json; charset=utf-16", "multipart/form-data", "x" * 9000)
JSON: dict[str, str | bytes] = {"Content-Type": "application/json"}
KEYS = ("", "Bearer", "Bearer x", "Basic eA==", b"Bearer \xff\xfe")
HEADERS: tuple[dict[str, str | bytes], ...] = (
    *({"Content-Type": kind} for kind in KINDS),
    *({"Authorization": key} for key in KEYS),
    *({"Content-Encoding": "gzip"}, {"Content-Length": "-1"}, {"Transfer-Encoding": "chunked"}),
    *({"Accept": "text/html"}, {"Expect": "100-continue"}, {"Origin": "http://x"}, {"Host": ""}),
    *({"X-Request-Id": "x" * 60_000}, {"Cookie": "a=b;" * 500}, {"Range": "bytes=0-1"}),
)
# Values that one field or another takes.
FITTING = (
    *(None, True, False, 0, 1, 2, 7, 0.5, -1, "a", "math", "mc", "user", "assistant", "system"),
    *("risk 0.5", "score 0.9 top 2", "every 3 audit 0.1", "risk 0.5 kl 1", [5, 6], [[5]], ["a"]),
    *(TURN, [TURN], PARTS, ROUTED["citer"], {"include_usage": False}, {"type": "text"}),
)
ROWS: tuple[Any, ...] = (
    "Ann has 3 bags of 6 apples. How many?",
    {"problem": "2 + 2?", "task": "math"},
    {"question": "A planet?", "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]}},
    {"messages": [TURN]},
)


class Asking(NamedTuple):
    method: str
    path: str
    headers: dict[str, str | bytes]
    body: bytes


def asking(rng: Random) -> Asking:
    """Return a request: mostly one changed value in a good body, seldom all else."""
    path, bodies = rng.choice(((CHAT, CHATS), (TEXT, COMPLETIONS)))
    body = _body(rng, COMMON | rng.choice(bodies))
    headers = JSON | (rng.choice(HEADERS) if rng.random() < 0.15 else {})
    if rng.random() < 0.05:
        return Asking(rng.choice(METHODS), rng.choice(PATHS), headers, body)
    return Asking("POST", path, headers, body)


def _body(rng: Random, content: Any) -> bytes:
    text = json.dumps(altered(rng, content)).encode("utf-8", "surrogatepass")
    match rng.randrange(12):
        case 0:
            return _broken(rng, text)
        case 1:
            return rng.choice(TEXTS).encode()
        case 2:
            return text.decode().encode(rng.choice(("utf-16", "utf-32", "utf-8-sig")))
    return text


def _broken(rng: Random, text: bytes) -> bytes:
    """Cut the text, or insert bytes that are hard to parse."""
    place = rng.randrange(len(text) + 1)
    middle = rng.choice((b"\xff", b"\0", b"\xed\xa0\x80", rng.randbytes(8), *TEXTS[:4]))
    middle = middle.encode() if isinstance(middle, str) else middle
    return rng.choice((text[:place], text[:place] + middle + text[place:]))


def altered(rng: Random, content: Any) -> Any:
    """Change one to three values of a copy of an object."""
    content = copy.deepcopy(content)
    for _ in range(min(rng.choice((1, 1, 2, 3)), len(content))):
        if rng.random() < 0.5:
            where, key = rng.choice([*places(content)])
            where[key] = copy.deepcopy(rng.choice(FITTING))
        else:
            content = changed(rng, content)
    return content


def rows(rng: Random) -> list[Any]:
    """Return rows for one call of the served model."""
    return [rng.choice((_row, _value))(rng) for _ in range(rng.randrange(1, 4))]


def _row(rng: Random) -> Any:
    row = rng.choice(ROWS)
    return altered(rng, row) if isinstance(row, dict) and rng.random() < 0.8 else row


def _value(rng: Random) -> Any:
    return copy.deepcopy(rng.choice((*VALUES, *TEXTS)))
