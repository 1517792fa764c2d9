"""The floor is of the forwards that ran, and it runs all of them."""

import pytest

from benchmarks.decode import decode
from benchmarks.floor import Floor, Forward, recorded
from benchmarks.pairs import Subject
from citer.decoding.engine import Engine
from citer.decoding.lane import Work


def ran(subject: Subject, slots: int, count: int) -> tuple[list[Forward], dict[str, Work]]:
    pair, log = recorded(subject.pair)
    engine = Engine(pair, slots, max_new_tokens=24)
    decode(engine, subject.requests(count), subject.policy(0.3))
    return log, {"slm": engine.slm_work, "llm": engine.llm_work}


@pytest.mark.parametrize("model", ["slm", "llm"])
def test_at_batch_1_the_shapes_are_the_counted_work(subject: Subject, model: str) -> None:
    log, work = ran(subject, slots=1, count=2)
    mine = [forward for forward in log if forward.model == model]
    assert (
        Work(
            forwards=len(mine),
            positions=sum(forward.rows * forward.tokens for forward in mine),
            kv_read=sum(forward.rows * forward.span for forward in mine),
        )
        == work[model]
    )


@pytest.mark.parametrize("model", ["slm", "llm"])
def test_in_a_batch_the_shapes_hold_the_counted_work(subject: Subject, model: str) -> None:
    log, work = ran(subject, slots=4, count=4)
    mine = [forward for forward in log if forward.model == model]
    assert len(mine) == work[model].forwards
    assert sum(forward.rows * forward.tokens for forward in mine) >= work[model].positions
    assert sum(forward.rows * forward.span for forward in mine) >= work[model].kv_read
    assert {forward.kind for forward in mine} >= {
        "prefill",
        "catch-up" if model == "llm" else "step",
    }


def test_the_floor_runs_every_forward_again(subject: Subject) -> None:
    log, _ = ran(subject, slots=4, count=4)
    again = []
    hooks = [
        model.network.get_input_embeddings().register_forward_pre_hook(
            lambda _, inputs: again.append(inputs[0].numel())
        )
        for model in (subject.pair.slm, subject.pair.llm)
    ]
    Floor(subject.pair, subject.router, log).run()
    for hook in hooks:
        hook.remove()
    assert again == [sum(forward.counts) for forward in log]
