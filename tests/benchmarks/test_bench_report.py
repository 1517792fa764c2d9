"""Known numbers: how they are combined, judged and written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.decode import crossover
from benchmarks.report import Finding, Race, Target, add_to_report, markdown, print_report

FOUND = [
    Finding(1, "floor / measured", "tiny", 0.9, Target("≥", 0.9), {"tokens/s": 12345.678}),
    Finding(8, "sweep", "tiny", 3.6, Target("≤", 3.5)),
    Finding(3, "stated", "tiny", 2.0),
]


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    race = Race({"ours": [10.0, 4.0, 9.0], "theirs": [5.0, 1.0, 9.0]})
    assert race.ratio("ours", "theirs") == 2
    assert race.speed("ours") == 9


@pytest.mark.parametrize(
    ("gains", "pays_below"),
    [
        ([2.0, 1.25, 0.625], 0.5),  # 1 / gain: 0.5, 0.8, 1.6
        ([0.8, 0.7, 0.6], 0.0),
        ([4.0, 3.0, 2.0], 1.0),
    ],
)
def test_routing_pays_below_the_fraction_at_which_a_token_takes_as_long_as_the_llms(
    gains: list[float], pays_below: float
) -> None:
    assert crossover((0.1, 0.4, 0.8), gains) == pytest.approx(pays_below)


def test_a_report_holds_values_targets_and_the_machine(tmp_path: Path) -> None:
    for finding in FOUND:
        add_to_report(tmp_path / "bench.json", finding)
    report = json.loads((tmp_path / "bench.json").read_text())
    machine = report[0].pop("machine")
    assert report[0] == {
        "row": 1,
        "what": "floor / measured",
        "pair": "tiny",
        "value": 0.9,
        "target": "≥ 0.9",
        "verdict": "met",
        "details": {"tokens/s": 12350.0},
    }
    assert [finding["verdict"] for finding in report] == ["met", None, "missed"]
    assert {"cpu", "cores", "threads", "torch", "date"} <= machine.keys()


def test_a_row_measured_again_replaces_only_its_earlier_value(tmp_path: Path) -> None:
    for finding in (*FOUND, replace(FOUND[1], value=3.4)):
        add_to_report(tmp_path / "bench.json", finding)
    report = json.loads((tmp_path / "bench.json").read_text())
    assert [finding["value"] for finding in report] == [0.9, 2.0, 3.4]


def test_the_table_shows_which_targets_are_missed(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(FOUND)
    lines = capsys.readouterr().out.splitlines()
    assert any("sweep" in line and "3.6" in line and "missed" in line for line in lines)
    assert any("12,346" in line for line in lines)


def test_cells_have_intervals_and_gaps_have_signs() -> None:
    rows = [{"method": "a", "c95": (0.5, 0.25, 1.0), "above b": 0.1}, {"c95": None}]
    assert markdown(rows).splitlines() == [
        "| method | c95 | above b |",
        "| --- | --- | --- |",
        "| a | 0.5000 [0.2500, 1.0000] | +0.100 |",
        "|  |",
    ]
    assert markdown([]) == ""
