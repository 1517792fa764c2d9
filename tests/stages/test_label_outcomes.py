"""label@k by each outcome, and what `probe` chooses."""

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from citer.config.params import Params
from citer.data.problems import Audit, Problem, read_problems, write_problems
from citer.errors import InputError
from citer.labelling.suffix import MARGIN
from citer.models.bundle import Card, read_card
from citer.stages import label, paths, train
from citer.stages.outcome import check_answers, choose, sources, write_outcome
from citer.storage.schema import PREFERENCE
from citer.storage.tables import PARTIAL, read_json, read_table, table_metadata, write_json
from tests.stages.conftest import run_killed

PREFERENCES = paths.referenced("preference")


def use(outcome: str) -> None:
    write_json(paths.OUTCOME, {"outcome": outcome, "reason": "a test"})


def asking(params: Params, outcome: str, minutes: float = 60.0) -> Params:
    section = params.label.model_copy(update={"outcome": outcome, "minutes": minutes})
    return params.model_copy(update={"label": section})


def change(**changes: object) -> list[Problem]:
    """Rewrite the rows without scoring them again: the reference and its tokens stay."""
    problems = [replace(problem, **changes) for problem in read_problems(PREFERENCES)]
    write_problems(PREFERENCES, problems, {})
    return problems


def test_suffix_is_calibrated_by_rollouts_and_the_router_says_so(
    scored: Params, capsys: pytest.CaptureFixture
) -> None:
    use("suffix")
    label.run(scored, 1)
    metadata = table_metadata(paths.preferences(1))
    calibration, labels = metadata["calibration"], metadata["labels"]
    assert calibration["margin"] == labels["margin"]
    assert 0 < calibration["equal"] <= calibration["rolled_out"]
    shown = f"{calibration['equal']} of {calibration['rolled_out']} rolled-out tokens"
    assert shown in capsys.readouterr().out
    table = read_table(paths.preferences(1), PREFERENCE)
    contested = table.filter(pc.equal(table["case"], "contested"))
    assert contested["fall"].null_count == 0
    assert len(table) - table["fall"].null_count == len(contested)
    train.run(scored, 1)
    assert read_card(paths.router(1))["labels"] == {
        "references": "given",
        "outcome": "suffix",
        "margin": labels["margin"],
    }
    assert Card.model_validate(read_card(paths.router(0))).labels is None


def test_without_answers_every_label_in_the_llms_references_is_made_without_a_rollout(
    scored: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(answer=None, written_by="llm")
    use("suffix")
    monkeypatch.setattr("citer.labelling.rollout.assess", lambda *_: pytest.fail("graded"))
    label.run(scored, 1)
    metadata = table_metadata(paths.preferences(1))
    expected = {"references": "llm", "outcome": "suffix", "margin": MARGIN}
    assert metadata["labels"] == expected
    assert "calibration" not in metadata
    cases = set(read_table(paths.preferences(1), PREFERENCE)["case"].to_pylist())
    assert cases == {"slm_right", "same_wrong", "contested"}


def test_agreement_needs_no_answers(scored: Params) -> None:
    change(answer=None, written_by="llm")
    use("agreement")
    label.run(scored, 1)
    table = read_table(paths.preferences(1), PREFERENCE)
    assert set(table["origin"].to_pylist()) == {"shortcut", "same_token", "agreement"}
    assert table_metadata(paths.preferences(1))["labels"]["margin"] is None


def test_an_audited_answer_has_labels_where_it_was_audited_only(scored: Params) -> None:
    label.run(scored, 1)
    before = read_table(paths.preferences(1), PREFERENCE)
    tokens = label._read(scored, 1).tokens.to_pylist()
    first, second, *_ = [row for row in tokens if row["problem_id"] == "math-0"]
    audits = (
        Audit(first["position"], first["slm_token"], kept=False),
        Audit(second["position"], second["slm_token"] + 1, kept=True),  # another token today
    )
    problems = read_problems(PREFERENCES)
    audited = [
        replace(p, audits=audits, answer=None) if p.problem_id == "math-0" else p for p in problems
    ]
    write_problems(PREFERENCES, audited, {})
    label.run(scored, 1)
    table = read_table(paths.preferences(1), PREFERENCE)
    [row] = table.filter(pc.equal(table["problem_id"], "math-0")).to_pylist()
    assert (row["position"], row["label"], row["case"], row["origin"]) == (0, 0, "audited", "audit")
    others = table.filter(pc.not_equal(table["problem_id"], "math-0"))
    assert others.equals(before.filter(pc.not_equal(before["problem_id"], "math-0")))
    assert table_metadata(paths.preferences(1))["labels"]["references"] == "audited+given"


def test_audited_answers_need_no_room_for_a_rollout(scored: Params) -> None:
    section = scored.label.model_copy(update={"max_new_tokens": 1000})
    params = scored.model_copy(update={"label": section})
    with pytest.raises(InputError, match=r"problem math-0: .* 1000 more \(label.max_new_tokens\)"):
        label._read(params, 1)
    change(audits=(Audit(0, 1, kept=True),))
    assert len(label._read(params, 1).problems) == 12


@pytest.mark.slow
def test_a_killed_calibration_keeps_its_chunks_and_ends_in_the_same_bytes(scored: Params) -> None:
    use("suffix")
    label.run(scored, 1)
    whole = paths.preferences(1).read_bytes()
    paths.preferences(1).unlink()
    run_killed(scored, "label", 1, module="citer.executors.choose", function="write_table")
    assert [path.parent.name for path in PARTIAL.rglob("*.parquet")] == ["rollouts"]
    label.run(scored, 1)
    assert paths.preferences(1).read_bytes() == whole
    assert not list(PARTIAL.rglob("*.parquet"))


def test_rollouts_of_a_row_without_an_answer_are_refused_before_a_model_is_loaded(
    scored: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label, "open_pair", lambda *_: pytest.fail("a model was loaded"))
    change(answer=None)
    with pytest.raises(
        InputError, match=r"preference.parquet: problem math-0: no right answer .*suffix"
    ):
        label.run(scored, 1)


def test_a_label_without_the_choice_says_what_to_run(scored: Params) -> None:
    paths.OUTCOME.unlink()
    with pytest.raises(InputError, match=r"outcome.json: no such file, .*; run `citer probe`"):
        label.run(scored, 1)


def test_a_choice_that_params_no_longer_ask_for_is_refused(scored: Params) -> None:
    with pytest.raises(InputError, match=r"outcome.json: rollout, expected label.outcome, suffix"):
        label.run(asking(scored, "suffix"), 1)


def test_auto_takes_rollouts_if_every_row_has_an_answer_and_there_is_time(project: Params) -> None:
    problems = read_problems(PREFERENCES)
    section = asking(project, "auto", minutes=10).label
    assert choose(section, problems, 10).outcome == "rollout"
    assert choose(section, problems, 10.1).outcome == "suffix"
    some = [replace(problems[0], answer=None), *problems[1:]]
    chosen = choose(section, some, 0)
    assert chosen.outcome == "suffix"
    assert chosen.reason == "1 of 12 preference rows have no right answer"
    audited = [replace(problems[0], answer=None, audits=()), *problems[1:]]
    assert choose(section, audited, 0).outcome == "rollout"


@pytest.mark.parametrize("outcome", ["rollout", "agreement", "suffix"])
def test_an_explicit_outcome_is_written_as_it_is(project: Params, outcome: str) -> None:
    write_outcome(asking(project, outcome, minutes=1).label, read_problems(PREFERENCES), 1e6)
    assert read_json(paths.OUTCOME)["outcome"] == outcome


def test_the_file_is_the_same_for_other_times(project: Params) -> None:
    problems, section = read_problems(PREFERENCES), asking(project, "auto", minutes=30).label
    shown, files = [], []
    for minutes in (1.0, 28.0, 40.0):
        shown.append(write_outcome(section, problems, minutes))
        files.append(paths.OUTCOME.read_bytes())
    assert files[0] == files[1] != files[2]
    assert shown[2].startswith("label.outcome: suffix, since rollouts would take longer")


def test_answers_are_needed_for_rollouts_only(project: Params) -> None:
    problems = change(answer=None)
    for outcome in ("auto", "agreement", "suffix"):
        check_answers(outcome, problems, PREFERENCES)
    with pytest.raises(InputError):
        check_answers("rollout", problems, Path("x"))


@pytest.mark.parametrize(
    ("written_by", "audited", "named"),
    [
        ([None], 0, "given"),
        (["llm"], 0, "llm"),
        ([None, "llm"], 0, "both"),
        ([None, "llm"], 1, "audited+both"),
        ([], 1, "audited"),
    ],
)
def test_the_sources_of_references(
    project: Params, written_by: list[str | None], audited: int, named: str
) -> None:
    problem = read_problems(PREFERENCES)[0]
    rows = [replace(problem, written_by=each) for each in written_by]
    assert sources([*rows, *[replace(problem, audits=())] * audited]) == named
