"""What DVC is asked once: which stages need no look of their own."""

from datetime import timedelta
from pathlib import Path

from flows.repro import plan, reproduce, stage_names
from tests.flows.conftest import Pipeline

STAGES = {
    "first": {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]},
    "second": {"cmd": "cp b c", "deps": ["b"], "outs": ["c"]},
    "third": {"cmd": "cp c d", "deps": ["c"], "outs": ["d"]},
}


def fresh() -> set[str]:
    return {name for name, is_fresh in plan(print).items() if is_fresh}


def bring_up_to_date() -> None:
    for name in stage_names():
        reproduce(name, timedelta(minutes=1), print)


def test_stages_are_fresh_up_to_the_first_stale_one(pipeline: Pipeline) -> None:
    pipeline(STAGES)
    Path("a").write_text("1")
    assert fresh() == set()
    bring_up_to_date()
    assert fresh() == {"first", "second", "third"}
    Path("c").unlink()  # `third` may change with what `second` writes
    assert fresh() == {"first"}
    Path("a").write_text("2")
    assert fresh() == set()
