"""What `/metrics` shows. An observer may add metrics of its own to the same registry."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from citer.decoding.answer import Answer
from citer.rule import Rule

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "citer_requests", "Requests by path and status", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "citer_request_seconds",
            "Seconds from a request's head to the end of its reply",
            ["path"],
            registry=registry,
            buckets=SECONDS,
        )
        self._tokens = Counter(
            "citer_tokens", "Tokens of answers, by the model", ["model"], registry=registry
        )
        self._visits = Counter("citer_visits", "Calls of the LLM", registry=registry)
        self._audited = Counter(
            "citer_audited_tokens",
            "The SLM's tokens that audits compared with the LLM's choice",
            ["verdict"],
            registry=registry,
        )
        self.left = Counter("citer_left", "Requests whose client left early", registry=registry)
        self._deployed = Info("citer_deployed", "The router that answers", registry=registry)
        self.shadowed = Counter(
            "citer_shadowed",
            "Requests that were drawn for shadow answers",
            ["verdict"],
            registry=registry,
        )
        self.shadow_bytes = Counter(
            "citer_shadow_bytes", "Bytes that shadow answers move, each alone", registry=registry
        )

    def watch_queue(self, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        for name, value in (("waiting", waiting), ("running", running)):
            gauge = Gauge(f"citer_{name}_requests", f"Requests {name}", registry=self.registry)
            gauge.set_function(value)

    def deployed(self, version: str, rule: Rule) -> None:
        self._deployed.info({"version": version, "rule": str(rule)})

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
            # Paths that do not exist have no route, and no label of their own.
            path = scope["path"] if "route" in scope or "endpoint" in scope else "other"
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - begun)
