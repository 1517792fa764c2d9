"""The race of an untrained pair: what is compared, and what is refused."""

from pathlib import Path

import pytest

from benchmarks.untrained import Measured, race, row
from citer.config.params import SHIPPED, load_params
from citer.errors import InputError
from citer.models.router import Router
from citer.rule import Rule


def test_a_method_is_compared_by_sums_over_all_batches() -> None:
    llm = [Measured([(1, 2)], 2.0, 30, 1), Measured([(3,)], 6.0, 70, 0)]
    own = [Measured([(1, 2)], 1.0, 10, 1), Measured([(4, 5)], 1.0, 20, 1)]
    found = row("rule", own, llm)
    assert found["bytes"] == pytest.approx(0.3)
    ratio, low, high = found["seconds"]
    assert ratio == pytest.approx(2 / 8)
    assert (low, high) == pytest.approx((1 / 6, 1 / 2))  # resamples of one question alone
    assert (found["tokens"], found["right"], found["the LLM's text"]) == (4, 2, 1)
    both, theirs = Measured([(1, 2), (4, 5)], 2.0, 30, 2), Measured([(1, 2), (3,)], 8.0, 100, 1)
    batched = row("rule", [both], [theirs])
    assert batched["bytes"] == pytest.approx(0.3)
    assert (batched["tokens"], batched["right"], batched["the LLM's text"]) == (4, 2, 1)
    by_transformers = [each._replace(moved=None) for each in own]
    assert row("generate", by_transformers, llm)["bytes"] is None


def test_a_rule_that_asks_a_head_and_missing_questions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for rule, complaint in (
        ("risk 0.7 audit 1 by stand", "no scorer `stand`"),
        ("every 3 audit 1", r"test\.parquet"),
    ):
        with pytest.raises(InputError, match=complaint):
            race(load_params(SHIPPED), [Rule.parse(rule)], 3, 1, Router({}), tmp_path)
