"""Which audits of an earlier answer still give a label."""

from dataclasses import replace

import numpy as np
import pytest

from citer.data.problems import Audit
from citer.labelling.labeller import audited_labels
from tests.tiny import MATH

ANSWER = (5, 6, 7, 8, 0)
KEPT, REJECTED, LAST = Audit(0, 5, True), Audit(2, 9, False), Audit(4, 0, True)
PROBLEM = replace(MATH, audits=(KEPT, REJECTED, LAST), token_ids=ANSWER)
SLM = [5, 4, 9, 4, 0]  # what it writes today


def test_an_audit_is_a_label_where_the_slm_writes_the_judged_token() -> None:
    assert audited_labels(PROBLEM, ANSWER, np.array(SLM)) == {0: 1, 2: 0, 4: 1}


def test_an_slm_that_writes_another_token_today_has_no_label_there() -> None:
    assert audited_labels(PROBLEM, ANSWER, np.array([5, 4, 7, 4, 3])) == {0: 1}


@pytest.mark.parametrize(
    ("today", "labels"),
    [
        ((1, 6, 7, 8, 0), {0: 1}),  # nothing stands before position 0
        ((5, 1, 7, 8, 0), {0: 1}),
        ((5, 6, 1, 8, 0), {0: 1, 2: 0}),  # the tokens before position 2 are the same
        ((5, 6, 7, 8, 1), {0: 1, 2: 0, 4: 1}),  # another EOS ends the reference
        ((5, 6, 0), {0: 1, 2: 0}),  # a stop text was cut off
        ((5, 6, 78, 0), {0: 1, 2: 0}),  # two tokens became one
    ],
)
def test_audits_hold_as_far_as_the_text_has_the_same_tokens(
    today: tuple[int, ...], labels: dict[int, int]
) -> None:
    assert audited_labels(PROBLEM, today, np.array(SLM[: len(today)])) == labels


def test_a_problem_without_audits_has_none() -> None:
    assert audited_labels(MATH, ANSWER, np.array(SLM)) == {}
