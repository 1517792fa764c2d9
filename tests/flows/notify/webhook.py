"""A local server that keeps what is posted to it, as a webhook of a chat would."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.flows.servers import until


class Webhook:
    """The texts that were posted, and the address to post to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.texts: list[str] = []

    def told(self, *words: str) -> str:
        """Wait for a text that contains all `words`, and return it."""

        def found() -> str:
            return next((text for text in self.texts if all(word in text for word in words)), "")

        return str(until(found, 300))


@contextmanager
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.texts.append(json.loads(body)["text"])
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Webhook(f"http://127.0.0.1:{server.server_port}/hook")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield received
        server.shutdown()
