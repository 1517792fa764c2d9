"""Counters of the work of a model. The cost model uses them."""

from dataclasses import dataclass


@dataclass(slots=True)
class Work:
    """Forwards run, positions computed (and written to the cache), positions attended to."""

    forwards: int = 0
    positions: int = 0
    kv_read: int = 0

    def add(self, positions: int, kv_read: int) -> None:
        self.forwards += 1
        self.positions += positions
        self.kv_read += kv_read
