"""A version's promise: at its registration, while it serves, and at the gate."""

import logging
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from scipy.stats import beta

from citer.config.params import ServeParams
from citer.data.importing import parse_row
from citer.data.problems import write_problems
from citer.data.traffic import TRAFFIC
from citer.errors import InputError
from citer.evaluation.measure import FIDELITY, Conditions
from citer.rule import LLM, Rule
from citer.serving.evidence import Evidence
from citer.serving.promise import Promise, stored_promise
from citer.serving.shadow import Keeper
from citer.serving.status import standings
from citer.stages import paths
from citer.storage.tables import read_json
from flows.tracking import registry
from flows.tracking.model import promised
from flows.tracking.promises import log_standing
from flows.tracking.registry import fetched_bundle
from tests.flows.project import QUESTIONS, RULE, register, register_new, retrain
from tests.flows.tracking.registered import CHAMPION, version

DETECTS = ServeParams(shadow=1.0, false_alarms=20)  # three lost answers in a row are an alarm
QUESTION = parse_row({"problem": "Ann has 3 apples and eats 1. How many?"}, "math", "question")


def keeper(number: int = 2, told: object = log_standing) -> Keeper:
    """A server's keeper of a registered version, which tells MLflow of each step."""
    name = f"citer-router/{number}"
    with fetched_bundle(f"models:/{name}") as bundle:
        promise = stored_promise(bundle)
    evidence = Evidence(paths.EVIDENCE)
    return Keeper(name, promise, evidence, DETECTS, lambda v, standing, _: told(v, standing))


def lose(kept: Keeper, count: int) -> None:
    for _ in range(count):
        kept.take(QUESTION, {kept.rule: "#### 1", LLM: "#### 2"})


def test_a_registration_stores_the_promise_with_the_rules_to_step_back_to(project: Path) -> None:
    register_new(1, correct=150, llm_correct=180, discordant=4)
    with fetched_bundle("models:/citer-router/2") as bundle:
        kept = stored_promise(bundle)
    # Both are right on the first 150 of 200. The bound is Clopper-Pearson's, of the beta quantile.
    unlike = beta.ppf(0.95, 50 + 1, QUESTIONS - 50)
    path = [str(RULE), "risk 0.9375 audit 0.1", "risk 0.75 audit 1.0"]
    assert kept.same == pytest.approx(unlike)
    about = {"same": kept.same, "delta": 0.05, "max_new_tokens": 8}
    assert kept == Promise(path=path, graded=0.05, **about)


def test_a_fidelity_is_promised_of_all_answers(project: Path) -> None:
    retrain(1, correct=150, llm_correct=200, conditions=Conditions(FIDELITY))
    kept = promised(paths.report(1), read_json(paths.report(1) / "threshold.json"), 8)
    path, about = [str(RULE), "risk 0.75 audit 1.0"], {"delta": 0.05, "max_new_tokens": 8}
    assert kept == Promise(path=path, graded=None, same=0.05, **about)


@pytest.mark.parametrize("rule", [Rule("risk", 0.8, 1.0), LLM])
def test_answers_that_are_the_llms_own_need_no_promise(project: Path, rule: Rule) -> None:
    retrain(1)
    chosen = read_json(paths.report(1) / "threshold.json")
    assert promised(paths.report(1), chosen, 8)
    assert promised(paths.report(1), chosen | {"rule": asdict(rule)}, 8) is None
    assert promised(paths.report(1), chosen | {"certified": False}, 8) is None


def test_mlflow_has_the_evidence_over_time_and_each_step_once(project: Path) -> None:
    register_new(1, discordant=4)
    kept, before, client = keeper(), version(2).description, MlflowClient()
    kept.take(QUESTION, {kept.rule: "#### 2", LLM: "#### 2"})
    log_standing(kept.version, kept.standing)
    e_value = kept.standing.product.value
    lose(kept, 3)
    for _ in range(2):
        log_standing(kept.version, kept.standing)
    run = version(2).run_id
    places = client.get_metric_history(run, "serving/place")
    assert [(metric.step, metric.value) for metric in places] == [(1, 0), (4, 1)]
    [first, _] = client.get_metric_history(run, "serving/e_value")
    assert first.value == pytest.approx(e_value) != 1
    [step] = kept.standing.steps
    line = f"{step.at} UTC promise revoked after 3 of 4 shadow answers lost, e-detector "
    assert version(2).description.startswith(f"{before}\n\n{line}")
    assert version(2).description.endswith(": rule `risk 0.9375 audit 0.1` in force")
    assert version(2).description.count("promise revoked") == 1
    assert "promise" not in version(1).description.replace("all promises from them", "")


def test_a_step_that_a_lost_registry_missed_is_written_later(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drill of a lost registry: the evidence goes on, and each attempt is a line of the log."""
    register_new(1, discordant=4)
    kept, before = keeper(), version(2).description
    with monkeypatch.context() as lost, caplog.at_level(logging.WARNING):
        lost.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        lose(kept, 6)
    missed = [each for each in caplog.messages if "MLflow does not know where" in each]
    assert len(missed) == 2 == kept.standing.place
    assert all("no answer (ConnectionError)" in each for each in missed)
    assert len(kept.evidence.after(kept.version)) == 6
    assert standings(str(paths.EVIDENCE))[kept.version].steps == kept.standing.steps
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    registry.open_store("citer")
    assert version(2).description == before
    log_standing(kept.version, kept.standing)
    assert version(2).description.count("promise revoked") == 2


def test_an_error_is_written_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    log_standing("citer-router/2", None)
    assert "MLflow does not know where its promise stands" in caplog.text


def validated_by_traffic(count: int) -> None:
    asked = [replace(QUESTION, source=TRAFFIC)] * count + [QUESTION]
    write_problems(paths.referenced("validation"), asked, {})


def test_after_traffic_has_revoked_a_promise_only_one_about_traffic_follows(project: Path) -> None:
    register_new(1, discordant=4)
    lose(keeper(), 3)
    retrain(2, cost=0.4)
    validated_by_traffic(62)  # 63 are enough for a promise, with ε = δ = .05
    register()
    said = "the champion has a promise that traffic revoked (`risk 0.9375 audit 0.1` is in force)"
    reason = version(4).tags["reason"]
    unseen = "62 validation questions come from traffic, too few"
    assert reason.startswith(f"{said} and is set aside; {unseen}")
    assert version(4).tags["decision"] == "kept back"
    retrain(3, cost=0.9)  # dearer than the champion, whose rule no longer serves
    validated_by_traffic(63)
    register()
    assert version(6).tags["reason"].startswith(f"{said} and is set aside: its rule keeps the ")
    assert version(6).tags["decision"] == "promoted"


def test_after_traffic_has_revoked_a_promise_an_exact_rule_may_follow(project: Path) -> None:
    register_new(1, discordant=4)
    lose(keeper(), 3)
    retrain(2, cost=0.4, rule=Rule.parse("risk 0.75 audit 1"))
    validated_by_traffic(0)
    register()
    assert version(4).tags["decision"] == "promoted"


def test_damaged_evidence_is_no_absent_evidence(project: Path) -> None:
    register_new(1, discordant=4)
    paths.EVIDENCE.write_bytes(b"no database")
    retrain(2, cost=0.4)
    with pytest.raises(InputError, match=r"evidence\.db: no evidence can be kept here"):
        register()
    paths.EVIDENCE.unlink()
    Evidence(paths.EVIDENCE).declare("citer-router/2", "of another citer", "")
    with pytest.raises(InputError, match="citer-router/2: not evidence that this citer reads"):
        register()
    paths.EVIDENCE.unlink()
    Evidence(paths.EVIDENCE).declare("citer-router/1", "[]", "")
    register()
    assert version(4).tags["decision"] == "promoted"


def test_of_a_new_champion_there_is_no_evidence_yet(project: Path) -> None:
    register_new(1, discordant=4)
    lose(keeper(), 3)
    retrain(3, cost=0.9)
    validated_by_traffic(63)
    register()
    register_new(4, cost=0.3)
    assert "revoked" not in version(6).tags["reason"]
    with fetched_bundle(CHAMPION) as bundle:
        assert stored_promise(bundle).rules[0] == RULE
