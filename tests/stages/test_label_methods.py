"""label@k by each method, row by row if it is `auto`."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from citer.config.params import Params
from citer.data.problems import read_problems, write_problems
from citer.data.references import sources
from citer.labelling.suffix import MARGIN, Calibration
from citer.models.bundle import read_bundle
from citer.stages import label, paths, train
from citer.storage.schema import PREFERENCE
from citer.storage.tables import PARTIAL, read_table, table_metadata
from tests.stages.conftest import run_killed
from tests.stages.sections import with_section

PREFERENCES = paths.referenced("preference")


def change(**changes: object) -> None:
    """Rewrite the rows without scoring them again: the reference and its tokens stay."""
    problems = [replace(problem, **changes) for problem in read_problems(PREFERENCES)]
    write_problems(PREFERENCES, problems, {})


def test_suffix_is_calibrated_by_rollouts_and_the_router_says_so(
    scored: Params, capsys: pytest.CaptureFixture
) -> None:
    label.run(with_section(scored, "label", method="suffix"), 1)
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
    assert read_bundle(paths.router(1))[1]["labels"] == {
        "references": "given",
        "outcome": "suffix",
        "margin": labels["margin"],
    }
    assert "labels" not in read_bundle(paths.router(0))[1]


def test_without_answers_every_label_in_the_llms_references_is_made_without_a_rollout(
    scored: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(answer=None, written_by="llm")
    monkeypatch.setattr("citer.labelling.labeller.assess", lambda *_: pytest.fail("graded"))
    label.run(scored, 1)
    metadata = table_metadata(paths.preferences(1))
    expected = {"references": "llm", "outcome": "suffix", "margin": MARGIN}
    assert metadata["labels"] == expected
    assert "calibration" not in metadata
    cases = set(read_table(paths.preferences(1), PREFERENCE)["case"].to_pylist())
    assert cases == {"slm_right", "same_wrong", "contested"}


def test_labels_that_are_all_1_are_reported(
    scored: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    change(answer=None, written_by="llm")
    with monkeypatch.context() as patch:
        patch.setattr(label, "calibrate", lambda *_: Calibration(margin=inf))
        label.run(scored, 1)
    assert "label 1: all labels are 1" in " ".join(capsys.readouterr().err.split())
    label.run(scored, 1)
    assert "all labels are 1" not in " ".join(capsys.readouterr().err.split())


def test_auto_keeps_the_rollouts_of_answered_rows_beside_rows_without_an_answer(
    scored: Params, capsys: pytest.CaptureFixture
) -> None:
    label.run(scored, 1)
    before = read_table(paths.preferences(1), PREFERENCE)
    assert table_metadata(paths.preferences(1))["labels"]["outcome"] == "rollout"
    bare = {"math-0", "mc-1"}
    rows = read_problems(PREFERENCES)
    rows = [replace(p, answer=None) if p.problem_id in bare else p for p in rows]
    write_problems(PREFERENCES, rows, {})
    label.run(scored, 1)
    metadata, table = (read(paths.preferences(1)) for read in (table_metadata, labels_in))
    assert metadata["labels"]["outcome"] == "rollout+suffix"
    assert metadata["calibration"]["margin"] == metadata["labels"]["margin"]
    assert "labels by suffix" in capsys.readouterr().out
    answered = pc.invert(pc.is_in(table["problem_id"], pa.array([*bare])))
    assert table.filter(answered).equals(
        before.filter(pc.invert(pc.is_in(before["problem_id"], pa.array([*bare]))))
    )
    [*origins] = {(r["case"], r["origin"]) for r in table.filter(pc.invert(answered)).to_pylist()}
    assert ("contested", "suffix") in origins
    assert ("contested", "rollout") not in origins


def labels_in(path: Path) -> pa.Table:
    return read_table(path, PREFERENCE)


@pytest.mark.slow
def test_a_killed_calibration_keeps_its_chunks_and_ends_in_the_same_bytes(scored: Params) -> None:
    scored = with_section(scored, "label", method="suffix")
    label.run(scored, 1)
    whole = paths.preferences(1).read_bytes()
    paths.preferences(1).unlink()
    run_killed(scored, "label", 1, module="citer.executors.tables", function="write_table")
    assert [path.parent.name for path in PARTIAL.rglob("*.parquet")] == ["rollouts"]
    label.run(scored, 1)
    assert paths.preferences(1).read_bytes() == whole
    assert not list(PARTIAL.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("written_by", "named"),
    [([None], "given"), (["llm"], "llm"), ([None, "llm"], "both")],
)
def test_the_sources_of_references(
    project: Params, written_by: list[str | None], named: str
) -> None:
    problem = read_problems(PREFERENCES)[0]
    assert sources(replace(problem, written_by=each) for each in written_by) == named
