"""Sample the machine while stages run, and keep the samples until they are registered."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from mlflow.entities import Metric
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor

from citer.storage.tables import PARTIAL, whole_lines

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
    monitors = _monitors()
    _sample(monitors)  # the CPU's use is that since the sample before
    while not done.wait(SECONDS):
        line = json.dumps([time.time_ns() // 1_000_000, _sample(monitors)])
        with KEPT.open("a") as file:
            file.write(line + "\n")


def _monitors() -> list[BaseMetricsMonitor]:
    found: list[BaseMetricsMonitor] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    for kind in (GPUMonitor, ROCMMonitor):
        with suppress(ImportError, RuntimeError):  # no such GPU, or its library is missing
            found.append(kind())
    return found


def _sample(monitors: Iterable[BaseMetricsMonitor]) -> dict[str, float]:
    sample: dict[str, float] = {}
    for monitor in monitors:
        monitor.collect_metrics()
        sample |= monitor.aggregate_metrics()
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
