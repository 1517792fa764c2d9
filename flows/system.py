"""Sample the machine while stages run, and keep the samples until they are registered."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mlflow.entities import Metric
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from citer.io import PARTIAL, whole_lines

KEPT = PARTIAL / "system.jsonl"  # a sample a line: milliseconds since 1970, and its numbers
SECONDS = 10.0  # between two samples; as MLflow's own
MOST = 500  # samples to register


@contextmanager
def sampled() -> Iterator[None]:
    """Add samples of CPU, memory, disk, network and GPUs to `KEPT` during the block.

    The stages are processes of their own, so the whole machine is measured, by MLflow's monitors.
    """
    whole_lines(KEPT)  # a kill may have cut the last line
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    done = threading.Event()
    thread = threading.Thread(target=_sample_until, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _sample_until(done: threading.Event) -> None:
    logging.getLogger(SystemMetricsMonitor.__module__).setLevel(logging.WARNING)  # no GPU is fine
    machine = SystemMetricsMonitor(run_id=None)  # not started: it would log to a run
    _sample(machine)  # the CPU's use is that since the sample before
    while not done.wait(SECONDS):
        line = json.dumps([time.time_ns() // 1_000_000, _sample(machine)])
        with KEPT.open("a") as file:
            file.write(line + "\n")


def _sample(machine: SystemMetricsMonitor) -> dict[str, float]:
    machine.collect_metrics()
    sample: dict[str, float] = machine.aggregate_metrics()
    for monitor in machine.monitors:
        monitor.clear_metrics()
    return sample


def samples() -> list[Metric]:
    """Return the samples since the last registration, at most `MOST` of them, as MLflow's metrics.

    An attempt that was killed or failed has left its samples, too.
    """
    read = _read()
    return [
        Metric(f"system/{name}", value, at, step)
        for step, (at, sample) in enumerate(read[:: 1 + len(read) // MOST])
        for name, value in sample.items()
    ]


def _read() -> list[tuple[int, dict[str, float]]]:
    with suppress(OSError, ValueError):  # a missing or damaged file must not fail a registration
        return [json.loads(line) for line in KEPT.read_text().splitlines()]
    return []


def clear() -> None:
    """Remove the samples, so that the next retraining starts empty."""
    KEPT.unlink(missing_ok=True)
