"""Peak memory is that of the command, not of its parent."""

import sys
from pathlib import Path

from benchmarks.memory import peak

MEGABYTES = 2**20


def test_the_peak_is_that_of_the_command_not_of_its_parent(tmp_path: Path) -> None:
    ours = bytearray(300 * MEGABYTES)
    ours[::4096] = b"x" * len(ours[::4096])  # resident
    held = [
        peak([sys.executable, "-c", f"b'x' * {size * MEGABYTES}"], tmp_path) / MEGABYTES
        for size in (1, 101)
    ]
    assert held[0] < 100
    assert 90 < held[1] - held[0] < 110
