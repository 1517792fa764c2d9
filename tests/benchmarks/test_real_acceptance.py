"""The study of acceptance rules on a real pair: its settings, and its figures by hand."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import real_acceptance
from benchmarks.real import SETTINGS, merged
from citer.config.params import Params
from citer.evaluation.points import rule_columns
from citer.report.against import RULE, Answers
from citer.rule import LLM, SLM, Rule

# Ten questions: the share of right answers, and the bytes of each, relative to the LLM's.
RUNS = {
    ("slm", SLM): (0.2, 0.3),
    ("audited", Rule.parse("risk 0.5 audit 0.25")): (0.9, 0.5),
    ("audited", Rule.parse("risk 0.5 audit 1")): (1.0, 0.7),
    ("audited", Rule.parse("risk 0.5 kl 1")): (0.8, 0.5),
    ("llm", LLM): (1.0, 1.0),
}


@pytest.fixture
def answers() -> Answers:
    runs = [(name, *(rule_columns(rule)[key] for key in RULE)) for name, rule in RUNS]
    right_VQ = np.array([np.arange(10) < 10 * share for share, _ in RUNS.values()], float)
    bytes_VQ = np.array([[100 * cost] * 10 for _, cost in RUNS.values()])
    tokens_VQ = np.full_like(bytes_VQ, 4)
    return Answers(runs, np.full(10, "mc"), right_VQ, bytes_VQ, tokens_VQ, tokens_VQ / 2)


def test_the_settings_are_valid_and_name_the_files_that_are_written(tmp_path: Path) -> None:
    settings = merged(tmp_path / "slm", tmp_path / "llm", [SETTINGS, real_acceptance.CHANGES])
    prepare = Params.model_validate(settings).prepare
    named = {Path(each.path).stem for each in (*prepare.train, *prepare.validation, *prepare.test)}
    assert named == real_acceptance.ROWS.keys()


def test_exact_routing_belongs_to_each_kind(answers: Answers) -> None:
    assert real_acceptance.kinds(answers) == {"audit": [0, 2, 1, 4], "kl": [0, 2, 3, 4]}


def test_the_cost_of_an_accuracy_is_read_between_the_rules_of_a_kind(answers: Answers) -> None:
    found = real_acceptance.summary(answers)
    assert found["audit"]["90 %"]["cost"][0] == pytest.approx(0.5)
    assert found["kl"]["90 %"]["cost"][0] == pytest.approx(0.6)  # between 0.5 and exact routing
    assert found["kl"]["90 %"]["above"][0] == pytest.approx(0.1)
    assert found["audit"]["90 %"]["above"] is None


def test_a_rule_has_its_accuracy_its_cost_and_its_share_of_tokens(answers: Answers) -> None:
    assert real_acceptance.rules(answers)["risk 0.5 kl 1.0"] == {
        "accuracy": pytest.approx(0.8),
        "cost": pytest.approx(0.5),
        "LLM fraction": 0.5,
    }
