"""A round of drafts against the rule, one request and one token at a time; without vLLM."""

from random import Random

import numpy as np
import pytest
import torch

from citer.rule import Rule
from citer.vllm.drafting import Flag, Round, Rules

CPU = torch.device("cpu")
MOST, EOS = 8, 3
TEXTS = (
    *("score 0", "score 0.5", "score 1", "risk 0", "risk 0.3 audit 1", "risk 1 audit 0.5"),
    *("every 1 audit 1", "every 5", "every 100 audit 1", "score 0.3 cap 2", "risk 0.4 cap 6"),
)
RULES = [Rule.parse(text) for text in TEXTS]


def drafted(rule: Rule, tokens: list[int], scores: list[float]) -> int:
    """Return how many drafts the rule wants of these."""
    risk = 1.0
    for count, (token, score) in enumerate(zip(tokens, scores, strict=True)):
        if not rule.asks_slm or score < rule.least_score:
            return count
        risk *= score
        if rule.due(risk, count + 1) or token == EOS or count + 1 == MOST:
            return count + 1
    raise AssertionError("more tokens were expected")


@pytest.mark.parametrize("seed", range(20))
def test_a_round_ends_each_request_where_its_rule_does(seed: int) -> None:
    random = Random(seed)
    slots = random.sample(range(20), len(RULES))
    rules, columns = Rules(20, CPU), [random.randrange(2) for _ in RULES]
    for slot, rule, column in zip(slots, RULES, columns, strict=True):
        rules.put(slot, rule, column, MOST)
    tokens = [[random.randrange(20) for _ in range(MOST)] for _ in RULES]
    scores = [[[random.random() for _ in range(2)] for _ in range(MOST)] for _ in RULES]
    own = Round(rules.limits.rows(torch.tensor(slots)), MOST, torch.tensor([EOS]), Flag(CPU))
    goes_on = rules.most(np.array(slots)) > 0
    while goes_on:
        step = own.steps
        token_N = torch.tensor([each[step] for each in tokens])
        goes_on = own.take(token_N, torch.tensor([each[step] for each in scores]))
    expected = [
        drafted(rule, tokens[n], [both[columns[n]] for both in scores[n]])
        for n, rule in enumerate(RULES)
    ]
    assert own.drafted_N.tolist() == expected
    assert own.steps - max(expected) in (0, 1)  # a score below the rule's takes a step, too


def test_a_score_that_overflowed_ends_the_drafts() -> None:
    rules = Rules(1, CPU)
    rules.put(0, Rule.parse("score 0.1"), 0, MOST)
    own = Round(rules.limits, MOST, torch.tensor([EOS]), Flag(CPU))
    assert not own.take(torch.tensor([5]), torch.tensor([[torch.nan]]))
    assert own.drafted_N.tolist() == [0]


def test_slots_without_a_rule_are_exact_and_without_drafts() -> None:
    rules = Rules(2, CPU)
    assert rules.limits.pending_S.tolist() == [0, 0]
    assert not rules.relaxed(np.array([0, 1]))
    rules.put(1, Rule.parse("every 4 audit 0.5"), 0, 16)
    assert rules.relaxed(np.array([1]))
    assert not rules.relaxed(np.array([0]))
    assert rules.limits.pending_S.tolist() == [0, 4]
