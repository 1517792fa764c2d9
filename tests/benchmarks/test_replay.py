"""The replayed forwards are those that the cost formula prices."""

import pytest

from benchmarks.floor import work
from benchmarks.pairs import Subject
from benchmarks.replay import rank_correlation, write
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, low_entropy
from citer.evaluation.cost import Trace
from citer.rule import Rule

SOME = 2  # questions


@pytest.mark.parametrize("text", ["score 1", "score 0.4", "risk 0.2 audit 0.1", "every 8 audit 1"])
def test_the_recorded_forwards_equal_those_that_the_cost_formula_counts(
    subject: Subject, text: str
) -> None:
    rule = Rule.parse(text)
    forwards, tokens = write(subject, rule, SOME)
    requests = {request.key: request for request in subject.requests(SOME)}
    answers = list(
        Engine(subject.pair, 1, subject.new_tokens).decode(
            requests.values(), Policy(low_entropy, rule)
        )
    )
    traces = [
        Trace.of(len(requests[answer.key].prompt_ids), len(answer.token_ids), answer.visits)
        for answer in answers
    ]
    assert tokens == sum(len(answer.token_ids) for answer in answers)
    for model in ("slm", "llm"):
        priced = [getattr(trace, model) for trace in traces]
        assert work(forwards, model).forwards == sum(each.forwards for each in priced)
        assert work(forwards, model).positions == sum(each.positions for each in priced)
        assert work(forwards, model).kv_read == sum(each.kv_read for each in priced)


def test_rank_correlation_depends_only_on_the_order() -> None:
    assert rank_correlation([1.0, 0.2, 0.5], [100.0, 1.0, 2.0]) == pytest.approx(1)
    assert rank_correlation([1.0, 0.2, 0.5], [1.0, 3.0, 2.0]) == pytest.approx(-1)
    assert rank_correlation([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)
