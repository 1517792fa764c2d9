"""What the heads learn that need no preferences: labels and Co-LLM's loss, by hand."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from citer.evaluation.methods import TARGETS
from citer.stages.router0 import marginal_loss, targets
from tests.tiny import MATH

REFERENCE = 7
CASES = [(7, 7), (7, 8), (8, 7), (8, 8), (8, 9)]  # the tokens of the SLM and of the LLM
LABELS = {
    "agree": [1, 0, 0, 1, 0],
    "contested_llm": [1, 1, 0, 1, 0],
    "contested_slm": [1, 1, 0, 1, 1],
}


def tokens_of(problem_id: str) -> pa.Table:
    slm, llm = zip(*CASES, strict=True)
    return pa.table(
        {
            "problem_id": [problem_id] * len(CASES),
            "gt_token": pa.array([REFERENCE] * len(CASES), pa.int32()),
            "slm_token": pa.array(slm, pa.int32()),
            "llm_token": pa.array(llm, pa.int32()),
            "slm_logprob_gt": pa.array(np.log([0.9, 0.8, 0.3, 0.2, 0.1]), pa.float32()),
            "llm_logprob_gt": pa.array(np.log([0.8, 0.1, 0.6, 0.2, 0.3]), pa.float32()),
        }
    )


def test_every_target_is_one_of_a_candidate():
    assert set(targets({}, tokens_of("q"))) == set(TARGETS)


@pytest.mark.parametrize("name", LABELS)
def test_labels_follow_from_both_models_tokens_and_the_reference(name):
    target = targets({"q": MATH}, tokens_of("q"))[name]
    assert target.target_N.astype(int).tolist() == LABELS[name]
    assert target.own is None


@pytest.mark.parametrize(("name", "label"), [("contested_llm", 0), ("contested_slm", 1)])
def test_in_a_reference_by_the_llm_its_own_token_is_contested(name, label):
    by_llm = {"q": replace(MATH, written_by="llm")}
    assert targets(by_llm, tokens_of("q"))[name].target_N[2] == label


def test_co_llm_learns_what_both_models_expect_of_every_token():
    target, own = targets({"q": MATH}, tokens_of("q"))["co_llm"]
    assert own.loss is marginal_loss
    assert np.exp(target[0]).tolist() == pytest.approx([0.9, 0.8])
    assert np.exp(target[4]).tolist() == pytest.approx([0.1, 0.3])


@pytest.mark.parametrize(("written_by", "name"), [("", "contested_slm"), ("llm", "agree")])
def test_labels_that_need_no_preferences_calibrate_co_llm(written_by, name):
    """In the LLM's own references the SLM's tokens are all harmless, which calibrates nothing."""
    found = targets({"q": replace(MATH, written_by=written_by)}, tokens_of("q"))
    assert found["co_llm"].own.label_N.tolist() == found[name].target_N.tolist()


def test_the_marginal_loss_and_its_gradient_are_those_of_three_tokens_by_hand():
    logit = [0.0, 2.0, -1.0]
    p_slm, p_llm = [0.5, 0.1, 0.9], [0.1, 0.8, 0.9]
    logit_B = torch.tensor(logit, dtype=torch.float64, requires_grad=True)
    logprob_B2 = torch.tensor([p_slm, p_llm], dtype=torch.float64).T.log()
    loss = marginal_loss(logit_B, logprob_B2)
    loss.backward()
    keep = [1 / (1 + np.exp(-z)) for z in logit]  # 1 - φ
    likelihood = [k * s + (1 - k) * p for k, s, p in zip(keep, p_slm, p_llm, strict=True)]
    assert likelihood[0] == pytest.approx(0.3)
    assert loss.item() == pytest.approx(-np.log(likelihood).mean())
    slope = [
        -k * (1 - k) * (s - p) / m / 3
        for k, s, p, m in zip(keep, p_slm, p_llm, likelihood, strict=True)
    ]
    assert slope[0] == pytest.approx(-0.25 * 0.4 / 0.3 / 3)
    assert logit_B.grad.tolist() == pytest.approx(slope)
    assert slope[2] == 0, "equal likelihoods say nothing about who wrote the token"


def test_the_marginal_loss_is_finite_where_a_model_finds_the_token_impossible():
    loss = marginal_loss(torch.tensor([80.0, -80.0]), torch.tensor([[-200.0, 0.0], [0.0, -200.0]]))
    assert loss.item() == pytest.approx(80)
