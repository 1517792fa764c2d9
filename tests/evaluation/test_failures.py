"""What a grader failed on is counted in tables, and said in the reports."""

from citer.config.params import SHIPPED, load_params
from citer.data.problems import Problem
from citer.data.tasks.grading import Failures
from citer.decoding.answer import Counts
from citer.evaluation.cost import Prices, Trace, counted
from citer.evaluation.measure import ACCURACY, Conditions
from citer.evaluation.points import Findings, outcome_table, point_rows
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Result, Run
from citer.pairs.hints import shortfalls
from citer.report.standings import metrics, standings, summary
from citer.rule import Rule
from citer.stages.report import _Found, _Report
from tests.reported import NOTHING_CERTIFIED

TASK = "python:data/own/t.py:Own"
PARAMS = load_params(SHIPPED)
SIZES = PARAMS.evaluate.batches
PRICES = Prices(slm_weights=1, llm_weights=10, slm_kv=0, llm_kv=0)


def result(number: int, correct: bool, **more: float | str | None) -> Result:
    problem = Problem(f"q{number}", TASK, "?", None, None, "1", "own", "test")
    counts = Counts(1, 1, 1, 0, 0, 0)
    return Result(problem, Trace.of(1, 1, []), (), correct, False, counts, **more)


def runs(results: list[Result]) -> list[Run]:
    """Make the runs of both models alone, with the same answers."""
    return [Run(own.method, own.rules[0], results, PRICES, own.style) for own in ALONE_LINES]


WHOLE = [result(0, True), result(1, False)]
PARTS = [
    *WHOLE,
    result(2, False, share=0.5),
    result(3, False, failure="timeout after 5 s"),
    result(4, False, failure="its process ended by SIGSEGV"),
]


def written(results: list[Result], failed: list[Failures]) -> tuple[dict, str]:
    """Return the metrics and the table of the models alone and a router that is the LLM."""
    points = point_rows(runs(results), counted(PARAMS.evaluate, PARAMS.serve))
    chosen = {"llm": NOTHING_CERTIFIED}
    rows = standings(points, chosen)
    text = summary(rows, chosen, SIZES, Conditions(), failed)
    return metrics(rows, chosen, ACCURACY), text


def test_outcomes_have_the_share_and_the_failure_of_an_answer() -> None:
    table = outcome_table(runs(PARTS))
    assert table["share"].to_pylist()[:5] == [None, None, 0.5, None, None]
    assert table["failure"].to_pylist()[2:4] == [None, "timeout after 5 s"]
    [failed] = Findings(table, []).failures
    assert failed == Failures(TASK, 4, "timeout after 5 s", "q3")
    assert str(failed) == (
        "the grader of Own failed on 4 answers, which count as wrong; "
        "on problem q3: `timeout after 5 s`"
    )


def test_a_report_names_the_failures_and_the_mean_share() -> None:
    failed = Failures(TASK, 4, "timeout after 5 s", "q3")
    values, text = written(PARTS, [failed])
    assert f"- {failed}." in text
    assert "| share |" in text.replace("  ", " ")
    assert "30.0%" in text
    assert TASK not in text
    assert "Own" in text
    assert (values["llm"]["accuracy"], values["llm"]["mean_share"]) == (0.2, 0.3)
    assert values["llm"]["Own"]["mean_share"] == 0.3


def test_a_summary_counts_the_answers_by_the_rivals_scorers_once() -> None:
    """Two answers by each scorer fail. The reports of both routers repeat those of the rivals."""
    rival, own = (
        Run("policy", Rule("score", 0.5, by=name), PARTS, PRICES) for name in ("entropy", "stand")
    )
    repeated = _Report(Findings(outcome_table([rival, own]), []), {})
    rivals = Findings(outcome_table([rival]), [])
    [failed] = _Found(Conditions(), rivals, [repeated, repeated]).failures
    assert failed.answers == 2 + 2 + 2


def test_a_report_of_whole_answers_has_no_column_for_shares() -> None:
    values, text = written(WHOLE, [])
    assert "share" not in text.partition("\n")[0]
    assert "grader" not in text
    assert "Share:" not in text
    assert not any("mean_share" in row for row in values.values())


def test_the_floor_names_the_class_of_a_task() -> None:
    [missed] = shortfalls(WHOLE, 0.9)
    assert str(missed).startswith("LLM right on 50.0% of 2 Own questions of validation")
