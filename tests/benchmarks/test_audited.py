"""The study's summary, computed by hand, and the heads that its rules use."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.audited import OURS, agree_rules, entropy_rules, stand_rules, summary

from benchmarks.paired import Outcomes

FOUR = np.ones(4, bool)


def test_every_target_has_a_method_of_ours_and_the_names_of_methods_state_their_audits() -> None:
    families = {**stand_rules([0.5]), **agree_rules(), **entropy_rules([0.5])}
    assert set(OURS.values()) <= {*families, "audited"}
    for name, rules in families.items():
        audits = {rule.audit for rule in rules}
        if "exact" in name:
            assert audits == {1}
        elif "audited" in name or "BiLD" in name:
            assert 0 < min(audits) <= max(audits) < 1
        else:
            assert audits == {0}


def test_costs_are_means_over_seeds_and_differences_are_paired(outcomes: Outcomes) -> None:
    extra_T = np.array([0, 4, 0, 0, 0])
    costlier = replace(outcomes, bytes_TQ=outcomes.bytes_TQ + extra_T[:, None])
    outcomes_by_method = {"audited": [outcomes], "exact": [outcomes], "other": [outcomes, costlier]}
    by_target = summary(outcomes_by_method, FOUR)
    assert list(by_target) == ["90 %", "95 %", "99 %", "exact"]
    at_90 = by_target["90 %"]
    assert at_90["audited"]["above ours"] is None
    assert at_90["exact"]["above ours"] == (0, 0, 0)
    # 3.6 of 4 right: between 3 at .325 (or .425, the costlier one) and 4 at .775
    assert at_90["audited"]["cost"][0] == pytest.approx(0.595)
    assert at_90["other"]["above ours"][0] == pytest.approx(0.02)
    exact = by_target["exact"]["other"]
    assert exact["cost"][0] == pytest.approx(0.775)
    assert [rule["rule"] for rule in exact["rules"]] == ["score 0.6", "score 0.6"]
    assert exact["rules"][0]["b1"] == pytest.approx(0.775)
    assert exact["rules"][0]["the LLM's answers"] == 1
