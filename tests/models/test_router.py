"""A head's scores, and the head that a rule uses."""

import pytest
import torch

from citer.decoding.policy import (
    StepView,
    always_slm,
    low_entropy,
    routed,
    scorer_for,
    weight_bytes,
)
from citer.errors import InputError
from citer.models.router import HIGHEST, Head, Router, RouterMLP, features
from citer.rule import Rule


def test_a_score_is_the_calibrated_probability_below_one(head: Head, feature_NF) -> None:
    expected = torch.sigmoid(2.0 * head.mlp(feature_NF) - 0.5)
    torch.testing.assert_close(head.score(feature_NF), expected)
    sure = Head(head.mlp, slope=0.0, intercept=100.0)
    assert (sure.score(feature_NF) == HIGHEST).all()
    assert sure.score(feature_NF).max() < 1


def test_features_in_float64_are_scored_in_the_precision_of_the_weights(head, feature_NF) -> None:
    assert torch.equal(head.score(feature_NF.double()), head.score(feature_NF))


def test_a_head_without_weights_lets_every_token_stand() -> None:
    assert (Head(None).score(torch.randn(3, 8)) == HIGHEST).all()
    assert Head(None).weight_bytes == 0


def test_the_shape_is_the_papers_with_ten_more_inputs() -> None:
    mlp = RouterMLP(32, dropout=0.1)
    shapes = [tuple(w.shape) for name, w in mlp.named_parameters() if w.ndim == 2]
    assert shapes == [(64, 32 + 10), (32, 64), (1, 32)]
    norms = 2 * 64 + 2 * 32
    assert Head(mlp).weight_bytes == 4 * (64 * 42 + 64 + 32 * 64 + 32 + 32 + 1 + norms)


def test_exact_rules_use_the_agree_head_and_all_others_the_stand_head(router: Router) -> None:
    rules = {
        "score 0.9": router.heads["stand"],
        "risk 0.5 audit 0.1": router.heads["stand"],
        "risk 0.9 audit 1 by stand": router.heads["stand"],
        "score 0.9 by agree": router.heads["agree"],
        "risk 0.5 audit 1": router.heads["agree"],
        "score 0.5 audit 1": router.heads["agree"],
    }
    hidden_NH, logits_NV = torch.randn(5, 32), torch.randn(5, 20)
    view = StepView(hidden_NH, logits_NV, *torch.zeros(2, 5, dtype=torch.int64))
    assert (
        not router.heads["stand"]
        .score(features(hidden_NH, logits_NV))
        .equal(router.heads["agree"].score(features(hidden_NH, logits_NV)))
    )
    for text, expected in rules.items():
        rule = Rule.parse(text)
        assert scorer_for(router, rule) == expected
        policy = routed(router, rule)
        assert policy.rule == rule
        assert policy.scorer(view).equal(expected.score(features(hidden_NH, logits_NV)))


def test_a_rule_by_entropy_or_every_few_tokens_needs_no_head(router: Router) -> None:
    for text, scorer in {"risk 0.5 by entropy": low_entropy, "every 8 audit 1": always_slm}.items():
        assert scorer_for(Router({}), Rule.parse(text)) is scorer
        assert weight_bytes(scorer) == 0


def test_a_logistic_regression_reads_the_ten_numbers_and_has_44_bytes() -> None:
    head, feature_NF = Head(RouterMLP(0, dropout=0.0).eval()), torch.randn(5, 42)
    assert head.weight_bytes == 44
    linear = head.mlp.layers[0]
    logit_N = feature_NF[:, 32:] @ linear.weight[0] + linear.bias
    torch.testing.assert_close(head.score(feature_NF), torch.sigmoid(logit_N))


def test_a_rule_whose_head_the_router_lacks_is_refused_naming_both(router: Router) -> None:
    half = Router({"stand": router.heads["stand"]})
    assert scorer_for(half, Rule.parse("score 0.9")) == router.heads["stand"]
    known = "expected one of stand, entropy, probability"
    expected = f"rule `risk 0.5 audit 1.0`: no scorer `agree`; {known}"
    with pytest.raises(InputError, match=f"^{expected}$"):
        routed(half, Rule.parse("risk 0.5 audit 1"))
