"""Run the server in this process until a signal stops it."""

import gc
import os
import signal
import socket
from collections.abc import Sequence

import torch
import uvicorn
from prometheus_client import CollectorRegistry

from citer.errors import InputError, TemporaryError
from citer.progress import say
from citer.serving.server.app import make_app
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Releases
from citer.serving.server.service import Service, Settings

DRAIN = 300  # seconds for running and waiting requests, once the server shall exit


def make_server(service: Service, keys: Sequence[str]) -> uvicorn.Server:
    """Return a server that, once it shall exit, answers what it has received within `DRAIN`.

    It exits by itself if the engine fails.
    """
    config = uvicorn.Config(
        make_app(service, keys),
        http="h11",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN,
    )
    server = uvicorn.Server(config)
    service.stopped = lambda: setattr(server, "should_exit", True)
    return server


def run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run until SIGTERM or SIGINT. A second SIGINT does not wait for answers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # uvicorn raises it again at the end
    server.run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound. Raises InputError if it cannot be."""
    try:
        return socket.create_server((host, port), backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(f"--host {host} --port {port}: {error}") from None


def accepted_keys(host: str) -> list[str]:
    """Return the keys in CITER_API_KEYS, none if it is not set.

    Raises InputError if a server on `host` would be open to others, or open by mistake.
    """
    given = os.environ.get("CITER_API_KEYS")
    keys = [key.strip() for key in (given or "").split(",") if key.strip()]
    if given is not None and not keys:
        raise InputError("CITER_API_KEYS: no key; expected KEY,…, or no such variable")
    if not keys and host != "127.0.0.1":
        raise InputError(f"--host {host}: expected CITER_API_KEYS=KEY,… in the environment")
    return keys


def serve(settings: Settings, releases: Releases, listener: socket.socket) -> None:
    """Load the newest router with its pair, and answer until SIGTERM or SIGINT.

    Raises InputError, TemporaryError if the engine has failed.
    """
    host, port = listener.getsockname()[:2]
    keys, metrics = accepted_keys(host), Metrics(CollectorRegistry())
    if releases.traffic:
        metrics.watch_log(releases.traffic.counts)
    gc.collect()
    gc.freeze()  # imported modules are searched no more; a release must be, as it may be replaced
    # The service alone holds the release, so that a promotion frees it.
    service = Service(settings, releases, releases.made(releases.latest()), metrics)
    if service.release.deployment.pair.is_small:
        torch.set_num_threads(1)  # more would slow such short forwards down
    say(f"{settings.name} ({service.release.version}) answers at http://{host}:{port}/v1")
    run(make_server(service, keys), listener)
    if service.worker.failure:
        raise TemporaryError(service.worker.failure)
