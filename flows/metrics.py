"""Metrics of MLflow's runs: single numbers, and series with a value at each step."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from mlflow.entities import Metric, Param

from citer.evaluation.measure import MEASURES
from flows.store import Store

HEADLINES = {*MEASURES, "llm_fraction", "tokens_per_answer"}  # and the costs
LONGEST = 1000  # steps that are kept of a series: MLflow's page draws no more


def log(store: Store, run_id: str, params: Mapping[str, Any], metrics: Sequence[Metric]) -> None:
    """Log parameters and metrics in as few calls as MLflow allows."""
    texts = [Param(k, v if isinstance(v, str) else json.dumps(v)) for k, v in params.items()]
    store.client.log_batch(run_id, metrics=metrics, params=texts)


def numbers(named: Mapping[str, Any]) -> list[Metric]:
    """Make a metric of every number. What could not be measured is left out."""
    now = time.time_ns() // 1_000_000
    return [Metric(k, v, now, 0) for k, v in named.items() if isinstance(v, int | float)]


def series(named: Mapping[str, Sequence[float]]) -> list[Metric]:
    """Make metrics with the steps 1, 2, … of the values, or with `LONGEST` of these steps."""
    now = time.time_ns() // 1_000_000
    return [
        Metric(key, values[step - 1], now, step)
        for key, values in named.items()
        for step in _steps(len(values))
    ]


def _steps(last: int) -> Iterator[int]:
    """Yield at most `LONGEST` steps at equal distances, in order; the last is among them."""
    return reversed(range(last, 0, -ceil(last / LONGEST) or -1))


def headlines(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Select the few metrics that describe a router."""
    return {k: v for k, v in metrics.items() if k in HEADLINES or re.fullmatch(r"cost_b\d+", k)}


def section(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """{"all/a": 1, "math/a": 2} → {"a": 1} for the section `all`."""
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}


def flatten(nested: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, separator, f"{prefix}{key}{separator}")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
