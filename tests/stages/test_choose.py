"""The stage `choose`: another promise needs no other answers."""

from pathlib import Path

import pytest

from citer.config.params import Params, ServeParams
from citer.errors import InputError
from citer.evaluation.choice import ChosenRule
from citer.evaluation.points import Findings, outcome_table, rule_columns
from citer.rule import Rule
from citer.stages import choose, evaluate, paths, rivals, transcribe
from citer.storage.code import imported
from citer.storage.tables import digest, read_as, read_json, write_json
from tests.stages.sections import with_section


def promising(params: Params, epsilon: float, delta: float) -> Params:
    return with_section(params, "evaluate", epsilon=epsilon, delta=delta)


def chosen() -> dict[str, ChosenRule]:
    return read_as(paths.report(1) / "chosen.json", dict[str, ChosenRule])


def test_another_promise_changes_the_choice_and_no_answer(
    taught: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, certain, warned = [], [], []
    for each in (taught, promising(taught, 0.05, 0.05)):
        rivals.run(each)
        evaluate.run(each, 1)
        answers.append([digest(paths.RIVALS), digest(paths.answers(1))])
        capsys.readouterr()
        choose.run(each, 1)
        warned.append("needs 63" in capsys.readouterr().out)
        certain.append([name for name, rule in chosen().items() if rule.certified])
        assert {rule.epsilon for rule in chosen().values()} == {each.evaluate.epsilon}
    assert answers[0] == answers[1]
    exact = {name for name, rule in chosen().items() if rule.rule.exact}
    assert exact == {"speculative", "exact"}
    assert set(certain[0]) > set(certain[1]) == exact
    assert warned == [False, True]


def test_the_file_of_the_deployed_rule_changes_with_the_rule_alone(answered: Params) -> None:
    """So the transcript stays fresh under another promise that leaves the rule."""
    files = []
    for epsilon in (0.99, 0.9901, 0.05):
        choose.run(promising(answered, epsilon, 0.2), 1)
        [rule] = [each.rule for each in chosen().values() if each.deployed]
        content = read_json(paths.report(1) / paths.DEPLOYED)
        files.append(content)
        assert content["rule"] == str(rule)
    assert files[0] == files[1] != files[2]
    assert Rule.parse(files[2]["rule"]).exact


def test_the_choice_before_any_router_is_one_of_the_rivals_rules(taught: Params) -> None:
    rivals.run(taught)
    choose.run(taught, 0)
    assert not paths.answers(0).exists()
    rules = read_as(paths.report(0) / "chosen.json", dict[str, ChosenRule])
    assert "exact" in rules
    assert not {"router", "audited"} & rules.keys()


def test_the_transcript_is_of_the_deployed_rule(answered: Params) -> None:
    choose.run(answered, 1)
    transcribe.run(answered, 1)
    deployed = read_json(paths.report(1) / paths.DEPLOYED)
    written = read_json(paths.transcript(1))
    assert f"{Rule.parse(deployed['rule']):.4g}" == written["rule"]
    write_json(paths.report(1) / paths.DEPLOYED, deployed | {"rule": "score 7"})
    with pytest.raises(InputError, match=r"^data/reports/1/deployed\.json: rule: .*expected"):
        transcribe.run(answered, 1)


@pytest.mark.parametrize(("plain", "delayed"), [(0.4, 0.3), (0.3, 0.4)])
def test_a_rule_serves_by_the_schedule_at_which_it_is_cheaper(
    params: Params, plain: float, delayed: float
) -> None:
    rule = Rule("every", 4, 1)
    point = {"split": "validation", "method": "exact", "task": "all", **rule_columns(rule)}
    point |= {"cost_b8": plain, "cost_b8_delayed": delayed}
    eight = params.model_copy(update={"serve": ServeParams(batch=8)})
    found = choose._deployed(Findings(outcome_table([]), [point]), "exact", rule, eight)
    assert found["serve"] == {"engine": "citer", "batch": 8, "delayed": delayed < plain}


def test_nothing_that_runs_a_model_is_imported() -> None:
    files = imported(Path("citer/stages/choose.py"))
    assert not [file for file in files if "import torch" in file.read_text()]
