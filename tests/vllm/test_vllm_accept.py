"""Acceptance of drafts: what stands at which β, and the distribution that sampling then has."""

import pytest
import torch
from torch import Tensor

from citer.vllm.accept import judge, raise_drafts, stand

GREEDY = torch.tensor([True, True])
LOGITS = torch.tensor([[2.0, 1.0, 0.0, -torch.inf], [0.5, 0.5, 0.4, 0.3]])


def raised(logits_NV: Tensor, draft: int, beta: float, greedy: bool) -> Tensor:
    logits_NV, rows = logits_NV.clone(), len(logits_NV)
    judged = judge(logits_NV, torch.full((rows,), draft))
    raise_drafts(logits_NV, judged, torch.full((rows,), beta), torch.full((rows,), greedy))
    return logits_NV


@pytest.mark.parametrize(
    ("draft", "beta", "stands"),
    [
        (0, 1.0, True),  # the choice
        (1, 0.36, True),  # its odds are exp(-1) = 0.368
        (1, 0.37, False),
        (2, 0.0, True),
        (3, 0.0, False),  # forbidden by the request's own settings
    ],
)
def test_a_greedy_draft_stands_from_beta_on(draft: int, beta: float, stands: bool) -> None:
    logits_NV = raised(LOGITS[:1], draft, beta, greedy=True)
    assert (logits_NV.argmax() == draft) == stands
    kept = torch.arange(4) != draft
    assert torch.equal(logits_NV[:, kept], LOGITS[:1, kept])


def test_beta_1_rejects_a_tie_that_vllm_would_not_choose() -> None:
    assert raised(LOGITS[1:], draft=1, beta=1.0, greedy=True).argmax() == 0
    assert raised(LOGITS[1:], draft=1, beta=0.99, greedy=True).argmax() == 1


def test_exact_sampling_leaves_the_logits_alone() -> None:
    for draft in range(4):
        assert torch.equal(raised(LOGITS, draft, beta=1.0, greedy=False), LOGITS)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9])
def test_sampling_stays_within_1_minus_beta_of_the_llm(beta: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits_NV = torch.randn(200, 4, generator=generator).double() * 3
    p_NV, own_NV = (raised(logits_NV, 1, beta, False).softmax(1), logits_NV.softmax(1))
    expected_N = torch.ones(200).double() if beta == 0 else (own_NV[:, 1] / beta).clamp(max=1)
    torch.testing.assert_close(p_NV[:, 1], expected_N)
    far_N = (p_NV - own_NV).abs().sum(1) / 2
    assert far_N.max() <= 1 - beta + 1e-9
    assert far_N.max() > (1 - beta) / 2  # the bound is not an idle one
    others_NV = own_NV[:, [0, 2, 3]] / (1 - own_NV[:, 1:2]) * (1 - expected_N[:, None])
    torch.testing.assert_close(p_NV[:, [0, 2, 3]], others_NV)


def test_a_sampled_draft_that_top_p_drops_never_stands() -> None:
    judged, logprob_N = judge(LOGITS[:1], torch.tensor([3])), LOGITS[:1].log_softmax(1)[:, 3]
    for beta in (0.0, 0.5, 1.0):
        assert stand(logprob_N, judged, torch.tensor([beta]), torch.tensor([False])) == 0
    assert torch.equal(raised(LOGITS[:1], 3, 0.0, greedy=False), LOGITS[:1])


def test_a_sampled_draft_whose_probability_rounds_to_0_stands_at_beta_0() -> None:
    logits_NV = torch.tensor([[500.0, 0.0]])
    assert raised(logits_NV, 1, beta=0.0, greedy=False).softmax(1)[0, 1] == 1
    assert raised(logits_NV, 1, beta=0.1, greedy=False).softmax(1)[0, 1] == 0


def test_a_draft_that_vllm_has_withdrawn_never_stands() -> None:
    logits_NV = LOGITS[[0, 0]].clone()
    raise_drafts(logits_NV, judge(logits_NV, torch.tensor([1, -1])), torch.zeros(2), GREEDY)
    assert logits_NV.argmax(1).tolist() == [1, 0]
    assert torch.equal(logits_NV[1], LOGITS[0])
