"""What `/metrics` shows."""

import math
import time
from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citer.decoding.answer import Answer
from citer.serving.server.releases import Release

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)

PROMISE = {
    "e_detector": "Evidence that the promise is broken now; the rule steps back at "
    "serve.false_alarms",
    "e_value": "Evidence that the promise was ever broken by the rule in force",
    "step": "Steps back from the registered rule",
    "lapsed": "1 if shadow answers are missing for too long",
}


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.registry = registry
        self.requests = counter("citer_requests", "Requests by path and status", ["path", "status"])
        self.seconds = Histogram(
            "citer_request_seconds",
            "Seconds from a request's head to the end of its reply",
            ["path"],
            registry=registry,
            buckets=SECONDS,
        )
        self._tokens = counter("citer_tokens", "Tokens of answers, by the model", ["model"])
        self._visits = counter("citer_visits", "Calls of the LLM")
        audited = "The SLM's tokens that audits compared with the LLM's choice"
        self._audited = counter("citer_audited_tokens", audited, ["verdict"])
        self.left = counter("citer_left", "Requests whose client left early")
        drawn = "Requests that were drawn for shadow answers"
        self.shadowed = counter("citer_shadowed", drawn, ["verdict"])
        moved = "Bytes that shadow answers move, each alone"
        self.shadow_bytes = counter("citer_shadow_bytes", moved)
        self._deployed = Info("citer_deployed", "The router that answers", registry=registry)
        self._waiting = gauge("citer_waiting_requests", "Requests waiting")
        self._running = gauge("citer_running_requests", "Requests running")
        self._promise = [gauge(f"citer_promise_{name}", text) for name, text in PROMISE.items()]

    def watch_log(self, counts: Mapping[str, int]) -> None:
        """Show the counts of a `Traffic`."""
        rows = Gauge("citer_traffic_rows", "Rows of the log", ["verdict"], registry=self.registry)
        for verdict in ("logged", "left_out", "failed", "lost"):
            rows.labels(verdict).set_function(partial(counts.__getitem__, verdict))

    def show(self, waiting: int, running: int, release: Release) -> None:
        """Set the gauges. Those of a promise are NaN if it is not watched."""
        self._waiting.set(waiting)
        self._running.set(running)
        self._deployed.info({"version": release.version, "rule": str(release.rule)})
        values = (math.nan,) * len(PROMISE)
        if keeper := release.keeper:
            now = keeper.standing
            values = now.detector.value, now.product.value, now.place, keeper.lapsed
        for gauge, value in zip(self._promise, values, strict=True):
            gauge.set(value)

    def answered(self, answer: Answer) -> None:
        counts = answer.counts
        self._tokens.labels("llm").inc(counts.llm_tokens)
        self._tokens.labels("slm").inc(counts.tokens - counts.llm_tokens)
        self._visits.inc(counts.visits)
        self._audited.labels("agreed").inc(counts.audited - counts.disagreed)
        self._audited.labels("disagreed").inc(counts.disagreed)


class Measured:
    """Counts and times the requests of an application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.monotonic(), 500  # for an exception, which is answered further out

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            # Paths that do not exist, or name what a client wrote, have no label of their own.
            is_known = ("route" in scope or "endpoint" in scope) and not scope.get("path_params")
            path = scope["path"] if is_known else "other"
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - begun)
