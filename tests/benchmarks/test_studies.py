"""Studies: their files, a tiny one from methods to tables, and the settings of a real pair."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import study
from benchmarks.costs import Costs, Outcomes, columns, compared
from benchmarks.study import (
    STUDIES,
    Own,
    Rows,
    read_study,
    rows,
    settings_of,
    write_rows,
)
from benchmarks.workshop import Workshop
from citer.config.params import Params
from citer.errors import InputError
from citer.storage import tables

COUNTS = {"test": 4, "train": 3}
TINY = Costs.model_validate(
    {
        "seeds": 1,
        "targets": {"f95": "router", "c90 tried": "router", "exact": "both"},
        "fractions": [0.5],
        "risks": [0.5],
        "gammas": [2],
        "methods": {
            "entropy": {"by": "entropy", "rules": ["score"]},
            "speculative": {"by": "nothing", "rules": ["every audit 1"]},
            "router": {"by": "second", "rules": ["score"]},
            "narrow": {
                "by": "first",
                "contested": 0,
                "width": 2,
                "rules": ["score"],
            },
            "exact": {"by": "agree", "rules": ["risk audit 1"]},
        },
        "joined": {"both": ["router", "exact"]},
    }
)


@pytest.mark.parametrize("name", [path.stem for path in STUDIES.glob("*.yaml")])
def test_a_study_is_valid_and_compares_with_its_own_methods(name: str) -> None:
    content = read_study(name)
    if costs := content.costs:
        named = {*costs.targets.values(), *(n for pair in costs.joined.values() for n in pair)}
        assert named <= {*costs.methods, *costs.joined}
        grids = [grid for tried in costs.methods.values() for grid in tried.rules]
        assert all(rule.in_range for grid in grids for rule in costs.rules(grid, [0.5]))


def test_unknown_studies_and_keys_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="speed: no such study; expected audited, heads, labels"):
        read_study("speed")
    (tmp_path / "bad.yaml").write_text(
        "question: Why?\nregret: {seeds: [1], questions: 5, count: 5}\n"
    )
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    expected = r"bad\.yaml: regret: unknown key 'count'; expected seeds, questions"
    with pytest.raises(InputError, match=expected):
        read_study("bad")


def test_gaps_are_paired_and_means_are_over_seeds(outcomes: Outcomes) -> None:
    extra_T = np.array([0, 4, 0, 0, 0])
    costlier = replace(outcomes, bytes_TQ=outcomes.bytes_TQ + extra_T[:, None])
    answered = {"ours": [outcomes], "same": [outcomes], "other": [outcomes, costlier]}
    found = dict(columns(answered, np.ones(4, bool), {"c90": "ours", "exact": "ours"}))
    assert list(found) == ["c90", "c90 above ours", "exact", "exact above ours"]
    # 3.6 of 4 right: between 3 at .325 (or .425, the costlier one) and 4 at .775
    assert found["c90"]["ours"][0] == pytest.approx(0.595)
    assert found["c90 above ours"]["same"] == (0, 0, 0)
    assert found["c90 above ours"]["other"][0] == pytest.approx(0.02)
    assert found["exact"]["other"][0] == pytest.approx(0.775)


def test_a_tiny_study_has_a_row_for_each_task_and_method(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/tokens").symlink_to(shop.pair.slm.path.parent / "tokens")
    monkeypatch.chdir(tmp_path)
    found = compared(shop, TINY)
    table = [*rows(found)]
    assert [row["method"] for row in table] == [*TINY.methods, "both"] * len(shop.tasks)
    assert {"task", "f95", "f95 above router", "exact"} <= table[0].keys()
    assert all(0 < row["exact"][0] <= 1 for row in table)
    tables.write_json(tmp_path / "study.json", found)


def test_the_settings_of_a_real_pair_are_valid(tmp_path: Path) -> None:
    project = read_study("real").project
    assert project
    params = Params.model_validate(
        settings_of(project, Own(tmp_path / "slm", tmp_path / "llm", []))
    )
    assert params.pair.prompt == "chat"
    assert params.pair.slm == str(tmp_path / "slm")
    files = (*params.prepare.train, *params.prepare.validation, *params.prepare.test)
    written = [name for rows in project.rows for name in rows.counts]
    assert sorted(Path(file.path).stem for file in files) == sorted(written)


def test_no_row_is_in_two_files_and_too_few_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f"{json.dumps({'n': n})}\n" for n in range(9)))
    write_rows(source, tmp_path, Rows(counts=COUNTS))
    written = [
        json.loads(line)["n"] for name in COUNTS for line in (tmp_path / f"{name}.jsonl").open()
    ]
    assert written == [*range(7)]
    with pytest.raises(InputError, match=r"rows.jsonl: 9 rows, expected 12 or more"):
        write_rows(source, tmp_path, Rows(counts={"test": 12}))


def test_a_study_of_a_real_pair_needs_its_folders() -> None:
    with pytest.raises(InputError, match="needs --slm, --llm, --rows and --work"):
        Own.of(None, None, [])
