import pytest

from citer.evaluation.frontier import draw
from citer.evaluation.report import AT_SHARE, frontier, metrics, promise, standings, summary
from citer.evaluation.threshold import Threshold


def point(method: str, tau: float, fraction: float, accuracy: float, task: str = "all") -> dict:
    return {
        "split": "test",
        "method": method,
        "task": task,
        "threshold": tau,
        "questions": 100,
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.05,
        "accuracy_high": accuracy + 0.05,
        "llm_fraction": fraction,
        "tokens_per_answer": 40 + 10 * fraction,
        "cost_b1": 0.1 + fraction,
        "bytes_per_answer_b1": 7.0,
        "bytes_per_answer_b8": 3.0,
        "cost_b8": 1.1,
        "cost_b8_delayed": 0.5 + fraction,
    }


def points(task: str = "all") -> list[dict]:
    lines = [
        ("llm", 1.0, 1.0, 0.9),
        ("slm", 0.0, 0.0, 0.4),
        ("router_1", 0.8, 0.4, 0.8),
        ("router_1", 0.3, 0.1, 0.6),
        ("router_2", 0.7, 0.3, 0.86),
        ("random", 0.2, 0.2, 0.5),
        ("random", 0.5, 0.5, 0.6),
        ("entropy", 0.9, 0.5, 0.8),
    ]
    return [point(*line, task) for line in lines]


def threshold(tau: float, certified: bool = True) -> Threshold:
    return Threshold(tau, 0.05, 0.1, 200, 3, 0.033, certified, 0.3, 0.4)


CHOSEN = {"router_1": threshold(0.8), "router_2": threshold(0.7)}


def test_a_frontier_goes_from_the_slm_to_the_llm():
    line = frontier(points(), "router_1")
    assert [p["llm_fraction"] for p in line] == [0.0, 0.1, 0.4, 1.0]


def test_a_frontier_knows_only_test():
    other = point("router_1", 0.5, 0.2, 0.7) | {"split": "validation"}
    assert frontier([*points(), other], "router_1") == frontier(points(), "router_1")


def test_a_task_that_only_validation_has_is_not_reported():
    other = [p | {"split": "validation"} for p in points("mc")]
    assert standings([*points(), *other], CHOSEN) == standings(points(), CHOSEN)


def test_routers_stand_at_their_threshold_and_rivals_at_the_last_routers_rate():
    rows = standings(points(), CHOSEN)
    assert [row["method"] for row in rows] == [
        "slm", "llm", "router_1", "router_2", "random", "entropy"
    ]  # fmt: skip
    accuracies = [row["accuracy"] for row in rows]
    # at .3: random a third of the way from .2 to .5; entropy .3 / .5 of the way from the SLM
    assert accuracies == pytest.approx([0.4, 0.9, 0.8, 0.86, 0.5 + 0.1 / 3, 0.4 + 0.4 * 0.6])
    assert [row["llm_fraction"] for row in rows[2:]] == pytest.approx([0.4, 0.3, 0.3, 0.3])
    assert "accuracy_low" not in rows[-1]


def test_the_fraction_for_a_share_of_the_llms_accuracy_is_read_off_each_frontier():
    rows = {row["method"]: row for row in standings(points(), CHOSEN)}
    target = 0.95 * 0.9
    assert rows["router_1"][AT_SHARE] == pytest.approx(0.4 + 0.6 * (target - 0.8) / 0.1)
    assert rows["router_2"][AT_SHARE] == pytest.approx(0.3 * (target - 0.4) / 0.46)


def test_where_nothing_is_certified_the_router_stands_where_the_llm_does():
    _, llm, routed, *_ = standings(points(), {"router_1": threshold(1.0, certified=False)})
    assert routed["accuracy"] == llm["accuracy"]


def test_metrics_are_by_method_and_by_task_below_it():
    both = [*points(), *points("math")]
    found = metrics(standings(both, CHOSEN), CHOSEN)
    assert found["router_2"]["accuracy"] == 0.86
    assert found["router_2"]["math"]["cost_b1"] == pytest.approx(0.4)
    assert found["router_2"]["tau"] == 0.7
    assert found["router_2"]["discordant_bound"] == 0.033
    assert set(found["router_2"]["math"]) == {"accuracy", "llm_fraction", "cost_b1"}
    assert found["slm"]["bytes_per_answer_b1"] == 7.0
    assert not {"threshold", "accuracy_low", "bytes_per_answer_b8"} & set(found["slm"])


def test_the_summary_is_a_markdown_table_with_a_row_a_method():
    text = summary(standings(points(), CHOSEN), CHOSEN, [1, 8])
    table = text.splitlines()[: 2 + 6]
    assert all(line.startswith("|") for line in table)
    assert len({line.count("|") for line in table}) == 1
    assert "| router 2 |" in table[5]
    assert "86.0% ±5.0%" in table[5]
    assert "1.100 (0.800)" in table[5]
    assert "LLM fraction of router 2" in text.replace("\n", " ")


def test_a_promise_names_its_numbers():
    said = promise("router_2", threshold(0.7))
    assert said.startswith("router 2: τ = 0.7 keeps P(LLM right, routed wrong) <= 0.033")
    assert "confidence 0.9 (3 of 200 validation questions)" in said


def test_no_promise_is_said_plainly():
    assert "no τ that is cheaper than the LLM" in promise("router_1", threshold(1.0, False))


def test_the_frontier_is_a_picture_with_the_same_bytes_every_time(tmp_path):
    for name in ("one.png", "two.png"):
        draw(points(), CHOSEN, tmp_path / name)
    image = (tmp_path / "one.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert image == (tmp_path / "two.png").read_bytes()
    assert b"tEXt" not in image
