"""Known numbers: how they are combined, judged and written."""

import json
from pathlib import Path

import pytest

from benchmarks.report import Finding, Race, add_to_report, markdown, print_report

FOUND = [
    Finding("graphs", "routed / LLM", "tiny", 0.9, {"tokens/s": 12345.678}),
    Finding("sweep", "sweep", "tiny", 3.6),
    Finding("alone", "stated", "tiny", 2.0),
]


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    race = Race({"ours": [10.0, 4.0, 9.0], "theirs": [5.0, 1.0, 9.0]})
    assert race.ratio("ours", "theirs") == 2
    assert race.speed("ours") == 9


def test_a_report_holds_values_and_the_machine(tmp_path: Path) -> None:
    for finding in FOUND:
        add_to_report(tmp_path / "bench.json", finding)
    report = json.loads((tmp_path / "bench.json").read_text())
    machine = report[1].pop("machine")
    assert report[1] == {
        "row": "graphs",
        "what": "routed / LLM",
        "pair": "tiny",
        "value": 0.9,
        "details": {"tokens/s": 12345.678},
    }
    assert [finding["row"] for finding in report] == ["alone", "graphs", "sweep"]
    assert {"cpu", "cores", "threads", "torch", "date"} <= machine.keys()


def test_a_row_measured_again_replaces_only_its_earlier_value(tmp_path: Path) -> None:
    for finding in (*FOUND, FOUND[1]._replace(value=3.4)):
        add_to_report(tmp_path / "bench.json", finding)
    report = json.loads((tmp_path / "bench.json").read_text())
    assert [finding["value"] for finding in report] == [2.0, 0.9, 3.4]


def test_the_table_shows_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(FOUND)
    lines = capsys.readouterr().out.splitlines()
    assert any("sweep" in line and "3.6" in line for line in lines)
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
