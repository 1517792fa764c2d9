"""A small server with the pages of vLLM that `pair.llm_url` uses. It runs a real model."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from citer.models.pair import LanguageModel
from tests.padding import padded_batch

Chances = dict[int, float]


def _unchanged(answer: Any) -> Any:
    return answer


@dataclass
class Completions:
    """What the server answers, and what it was asked.

    `failures` has statuses with which the next completions are refused. From the completion number
    `dies_after` on, no request is answered. `twist` may change an answer, `headers` go with it.
    """

    model: LanguageModel
    tokenizer: PreTrainedTokenizerFast
    names: Sequence[str] = ("llm",)
    max_model_len: int = 600
    key: str | None = None
    failures: deque[int] = field(default_factory=deque)
    dies_after: int | None = None
    twist: Callable[[Any], Any] = _unchanged
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_dead(self) -> bool:
        return self.dies_after is not None and len(self.asked) >= self.dies_after

    def listing(self) -> dict[str, Any]:
        return {"data": [{"id": n, "max_model_len": self.max_model_len} for n in self.names]}

    def tokens(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": self.tokenizer.encode(content["prompt"], add_special_tokens=False)}

    @torch.inference_mode()
    def completion(self, content: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.asked.append(content)
            batch = padded_batch(content["prompt"])
            hidden_BTH = self.model.last_hidden(**batch)
            rows = zip(hidden_BTH, content["prompt"], strict=True)
            choices = [self._choice(row_TH[: len(ids)], ids, content) for row_TH, ids in rows]
            return self.twist({"choices": choices})

    def _choice(
        self, hidden_TH: torch.Tensor, ids: list[int], content: dict[str, Any]
    ) -> dict[str, Any]:
        of_prompt = content.get("prompt_logprobs")
        logprob_TV = self.model.logits(hidden_TH[0 if of_prompt else -1 :]).log_softmax(-1)
        (after,) = _likeliest(logprob_TV[-1:], content["logprobs"])
        choice = {"logprobs": {"top_logprobs": [{f"token_id:{n}": p for n, p in after.items()}]}}
        if of_prompt:
            own = logprob_TV[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
            rows = zip(ids[1:], own, _likeliest(logprob_TV[:-1], of_prompt), strict=True)
            choice["prompt_logprobs"] = [None, *(_named({n: p} | each) for n, p, each in rows)]
        return choice


def _likeliest(logprob_TV: torch.Tensor, count: int) -> list[Chances]:
    values, ids = logprob_TV.topk(count)
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return [dict(zip(*row, strict=True)) for row in rows]


def _named(listed: Chances) -> dict[str, Any]:
    return {str(token): {"logprob": each, "rank": 0} for token, each in listed.items()}


def _handler(completions: Completions) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the body would wait 40 ms for the headers' receipt

        def do_GET(self) -> None:
            self._answer(200, completions.listing())

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if completions.is_dead:
                self.close_connection = True
            elif completions.key and self.headers["Authorization"] != f"Bearer {completions.key}":
                self._answer(401, {"error": "Unauthorized"})
            elif self.path == "/tokenize":
                self._answer(200, completions.tokens(content))
            elif completions.failures:
                self._answer(completions.failures.popleft(), {"error": {"message": "not now"}})
            else:
                self._answer(200, completions.completion(content))

        def _answer(self, status: int, content: Any) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in (completions.headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving(completions: Completions) -> Iterator[Completions]:
    """Run the server in a thread, and set its `url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(completions))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    completions.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield completions
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
