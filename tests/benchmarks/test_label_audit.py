"""Wrong labels and classes, counted by hand, and finished answers against the labels of a run."""

import numpy as np
import pytest

from benchmarks.label_audit import CLASSES, KINDS, Auditor, Ends, overall
from benchmarks.workshop import Workshop
from citer.decoding.policy import SLM_ALONE
from citer.labelling.labeller import Labeller
from citer.labelling.rollout import Rollout

#             only SLM's  only LLM's  both   neither
SLM_N = np.array([True, False, True, False])
LLM_N = np.array([False, True, True, False])


@pytest.mark.parametrize(("label", "wrong"), [(1, 1), (0, 2)])
def test_a_label_is_wrong_if_the_other_token_alone_is_right_or_the_slms_needs_no_help(
    label: int, wrong: int
) -> None:
    counts = Ends(SLM_N, LLM_N).audit(np.full(4, label))
    assert counts == {"wrong": wrong} | dict.fromkeys(CLASSES, 1)


def test_labels_by_rollout_contradict_no_answer_except_by_the_tie_rule() -> None:
    ends = Ends(SLM_N, LLM_N)
    assert ends.label_N.tolist() == [1, 0, 1, 1]
    assert ends.audit(ends.label_N)["wrong"] == 0


def test_the_share_of_all_labels_weighs_the_kinds_by_their_tokens() -> None:
    def kind(every: int, checked: int, wrong: int) -> dict:
        return {"all": every, "tokens": checked, "finished by": {"LLM": {"wrong": wrong}}}

    assert overall({"a": kind(900, 100, 1), "b": kind(100, 50, 20)}, "LLM") == 0.049


def test_the_audit_of_a_tiny_run_agrees_with_the_labels_of_its_rollouts(shop: Workshop) -> None:
    shop = shop.only(["mc"])
    audited = Auditor(shop, SLM_ALONE).study()
    assert set(audited) <= set(KINDS)
    assert sum(kind["all"] for kind in audited.values()) == len(shop.tokens)
    same = audited["same_wrong"]["finished by"]["router 1"]
    assert same["wrong"] == same["only SLM's"] == same["only LLM's"] == 0
    contested = audited["contested"]["finished by"]["router 1"]
    rollout = Rollout(shop.engine, SLM_ALONE, "slm")
    labels = Labeller(shop.preference, shop.examples, rollout, 1).label(shop.tokens, lambda _: None)
    fatal = [row for row in labels.to_pylist() if row["llm_branch_correct"]]
    assert contested["only LLM's"] == len(fatal) > 0
    doomed = [row for row in labels.to_pylist() if row["llm_branch_correct"] is False]
    assert contested["neither"] == len(doomed)
