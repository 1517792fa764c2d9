"""Peak memory is the command's own."""

import sys
from pathlib import Path

from benchmarks.memory import peak

MEGABYTES = 2**20


def test_a_peak_is_what_the_command_held_not_what_its_parent_holds(tmp_path: Path) -> None:
    ours = bytearray(300 * MEGABYTES)
    ours[::4096] = b"x" * len(ours[::4096])  # resident
    held = [
        peak([sys.executable, "-c", f"b'x' * {size * MEGABYTES}"], tmp_path) / MEGABYTES
        for size in (1, 101)
    ]
    assert held[0] < 100
    assert 90 < held[1] - held[0] < 110
