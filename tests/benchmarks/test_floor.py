"""The floor runs exactly the forwards that were recorded."""

from collections.abc import Iterable

import pytest

from benchmarks.bench import decode
from benchmarks.floor import Floor, Forward, recorded
from benchmarks.pairs import Subject
from citer.decoding.answer import Work
from citer.decoding.engine import Engine


def ran(subject: Subject, slots: int, delayed: bool = False) -> tuple[list[Forward], Engine]:
    pair, log = recorded(subject.pair)
    engine = Engine(pair, slots, 24, delayed)
    decode(engine, subject.requests(6), subject.policy(0.3))
    return log, engine


def work_of(forwards: Iterable[Forward], model: str) -> Work:
    """Return the total work of a model's forwards."""
    total = Work()
    for _, starts, counts, _ in (forward for forward in forwards if forward.model == model):
        total.add(sum(counts), sum(starts) + sum(counts))
    return total


@pytest.mark.parametrize(("slots", "delayed"), [(1, False), (4, False), (4, True)])
def test_the_recorded_forwards_add_up_to_the_counted_work(
    subject: Subject, slots: int, delayed: bool
) -> None:
    log, engine = ran(subject, slots, delayed)
    assert work_of(log, "slm") == engine.slm_work
    assert work_of(log, "llm") == engine.llm_work


def test_the_floor_runs_every_forward_again(subject: Subject) -> None:
    log, _ = ran(subject, slots=4)
    pair, again = recorded(subject.pair)
    assert Floor(pair, subject.head, log, amount=7).run() == 7
    assert again == log
