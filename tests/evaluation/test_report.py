import pytest

from citer.evaluation import frontier as picture
from citer.evaluation.frontier import draw
from citer.evaluation.report import (
    AT_SHARE,
    efficient,
    frontier,
    metrics,
    promise,
    standings,
    summary,
)
from citer.evaluation.threshold import Threshold
from citer.rule import LLM, Rule


def point(
    method: str, rule: Rule, fraction: float, accuracy: float, cost: float, task: str = "all"
) -> dict:
    audited = bool(rule.audit)
    return {
        "method": method,
        "task": task,
        "visit": rule.visit,
        "threshold": rule.at,
        "audit": rule.audit,
        "questions": 100,
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.05,
        "accuracy_high": accuracy + 0.05,
        "llm_fraction": fraction,
        "visits_per_token": fraction / 2,
        "slm_steps_per_token": 1.0,
        "agreement": 0.75 if audited else None,
        "rejected_share": 0.125 if audited else None,
        "tokens_per_answer": 40 + 10 * fraction,
        "truncated_share": 0.0,
        "bytes_per_answer_b1": 7.0,
        "cost_b1": cost,
        "bytes_per_answer_b8": 3.0,
        "cost_b8": 1.1,
        "bytes_per_answer_b8_delayed": 2.0,
        "cost_b8_delayed": 0.4 + cost,
    }


LINES = [
    ("llm", "score 1", 1.0, 0.9, 1.0),
    ("slm", "score 0", 0.0, 0.4, 0.1),
    ("router_1", "score 0.8", 0.4, 0.8, 0.5),
    ("router_1", "score 0.3", 0.1, 0.6, 0.2),
    ("audited_1", "risk 0.5 audit 0.1", 0.05, 0.82, 0.35),
    ("audited_1", "risk 0.9 audit 0.1", 0.06, 0.88, 0.55),
    ("audited_1", "risk 0.5 audit 1", 0.08, 0.9, 0.45),
    ("audited_1", "risk 0.2 audit 1", 0.08, 0.81, 0.4),
    ("router_2", "score 0.7", 0.3, 0.86, 0.4),
    ("random", "score 0.2", 0.2, 0.5, 0.3),
    ("random", "score 0.5", 0.5, 0.6, 0.6),
    ("entropy", "score 0.9", 0.5, 0.8, 0.6),
    ("speculative", "every 2 audit 1", 0.5, 0.9, 0.7),
    ("speculative", "every 4 audit 1", 0.3, 0.9, 0.65),
    ("speculative", "every 8 audit 1", 0.2, 0.9, 0.9),
]


def points(task: str = "all") -> list[dict]:
    return [point(method, Rule.parse(rule), *rest, task) for method, rule, *rest in LINES]


def threshold(rule: str, certified: bool = True) -> Threshold:
    return Threshold(Rule.parse(rule), 0.05, 0.1, 200, 3, 0.033, certified, 0.3, 0.4)


def alone() -> Threshold:
    """Nothing certified: the LLM answers."""
    return Threshold(LLM, 0.05, 0.1, 0, 0, 0.0, False, 1.0, 1.0)


CHOSEN = {
    "router_1": threshold("score 0.8"),
    "audited_1": threshold("risk 0.5 audit 0.1"),
    "router_2": threshold("score 0.7"),
}


def by_method(found: list[dict]) -> dict[str, dict]:
    return {row["method"]: row for row in found}


def test_a_frontier_goes_from_the_slm_to_the_llm():
    line = frontier(points(), "router_1")
    assert [p["llm_fraction"] for p in line] == [0.0, 0.1, 0.4, 1.0]


def test_what_nothing_cheaper_reaches_is_efficient():
    """The models alone are of every method; of equal accuracy the cheapest stays."""
    line = [(p["cost_b1"], p["accuracy"]) for p in efficient(points(), "audited_1")]
    assert line == [(0.1, 0.4), (0.35, 0.82), (0.45, 0.9)]
    line = [p["cost_b1"] for p in efficient(points(), "speculative")]
    assert line == [0.1, 0.65]


def test_methods_stand_at_their_rule_and_rivals_at_the_last_routers_rate():
    rows = standings(points(), CHOSEN)
    assert [row["method"] for row in rows] == [
        "slm", "llm", "router_1", "audited_1", "router_2", "speculative", "random", "entropy"
    ]  # fmt: skip
    accuracies = [row["accuracy"] for row in rows]
    # at .3: random a third of the way from .2 to .5; entropy .3 / .5 of the way from the SLM
    rivals = [0.5 + 0.1 / 3, 0.4 + 0.4 * 0.6]
    assert accuracies == pytest.approx([0.4, 0.9, 0.8, 0.82, 0.86, 0.9, *rivals])
    fractions = [row["llm_fraction"] for row in rows[2:]]
    assert fractions == pytest.approx([0.4, 0.05, 0.3, 0.3, 0.3, 0.3])
    assert "accuracy_low" not in rows[-1]


def test_a_rule_is_known_by_its_visits_and_its_audits():
    for text, accuracy in (("risk 0.5 audit 0.1", 0.82), ("risk 0.5 audit 1", 0.9)):
        chosen = CHOSEN | {"audited_1": threshold(text)}
        assert by_method(standings(points(), chosen))["audited_1"]["accuracy"] == accuracy


def test_speculative_decoding_stands_at_its_cheapest_gamma():
    row = by_method(standings(points(), CHOSEN))["speculative"]
    assert (row["threshold"], row["cost_b1"]) == (4, 0.65)
    # Some questions answered by it, the others by the SLM alone.
    share = (0.95 * 0.9 - 0.4) / (0.9 - 0.4)
    assert row["cost_for_95_percent"] == pytest.approx(0.1 + share * 0.55)
    assert AT_SHARE not in row


def test_without_speculative_decoding_it_is_left_out():
    others = [p for p in points() if p["method"] != "speculative"]
    assert "speculative" not in by_method(standings(others, CHOSEN))


def test_the_fraction_for_a_share_of_the_llms_accuracy_is_read_off_each_frontier():
    rows = by_method(standings(points(), CHOSEN))
    target = 0.95 * 0.9
    assert rows["router_1"][AT_SHARE] == pytest.approx(0.4 + 0.6 * (target - 0.8) / 0.1)
    assert rows["router_2"][AT_SHARE] == pytest.approx(0.3 * (target - 0.4) / 0.46)


def test_the_cost_for_a_share_of_the_llms_accuracy_is_read_off_the_efficient_points():
    rows = by_method(standings(points(), CHOSEN))
    c95, c99 = 0.95 * 0.9, 0.99 * 0.9
    by_hand = {
        "router_1": (0.5 + 0.5 * (c95 - 0.8) / 0.1, 0.5 + 0.5 * (c99 - 0.8) / 0.1),
        "router_2": (0.1 + 0.3 * (c95 - 0.4) / 0.46, 0.4 + 0.6 * (c99 - 0.86) / 0.04),
        "audited_1": (0.35 + 0.1 * (c95 - 0.82) / 0.08, 0.35 + 0.1 * (c99 - 0.82) / 0.08),
        "entropy": (0.6 + 0.4 * (c95 - 0.8) / 0.1, 0.6 + 0.4 * (c99 - 0.8) / 0.1),
    }
    for method, costs in by_hand.items():
        row = rows[method]
        assert (row["cost_for_95_percent"], row["cost_for_99_percent"]) == pytest.approx(costs)


def test_where_nothing_is_certified_a_method_stands_where_the_llm_does():
    _, llm, routed, *_ = standings(points(), {"router_1": alone()})
    assert routed["accuracy"] == llm["accuracy"]


def test_audits_of_which_none_is_certified_do_not_move_the_rivals():
    """Rivals stand at the router's rate, whatever became of the audits."""
    chosen = {"router_1": threshold("score 0.8"), "audited_1": alone()}
    rows = by_method(standings(points(), chosen))
    assert rows["audited_1"]["accuracy"] == 0.9
    assert rows["random"]["llm_fraction"] == rows["router_1"]["llm_fraction"] == 0.4
    said = summary(standings(points(), chosen), chosen, [1]).replace("\n", " ")
    assert "LLM fraction of router 1" in said


def test_where_every_method_audits_the_rivals_stand_at_the_last():
    chosen = {"audited_1": threshold("risk 0.5 audit 0.1")}
    rows = standings(points(), chosen)
    assert by_method(rows)["random"]["llm_fraction"] == 0.05
    assert "LLM fraction of audited 1" in summary(rows, chosen, [1]).replace("\n", " ")


def test_the_interval_of_an_accuracy_need_not_be_symmetric():
    whole = [p | {"accuracy_low": 0.7612, "accuracy_high": 1.0} for p in points()]
    assert "| 90.0% [76.1, 100.0] |" in summary(standings(whole, CHOSEN), CHOSEN, [1])


def test_metrics_are_by_method_and_by_task_below_it():
    both = [*points(), *points("math")]
    found = metrics(standings(both, CHOSEN), CHOSEN)
    assert found["router_2"]["accuracy"] == 0.86
    assert found["router_2"]["math"]["cost_b1"] == pytest.approx(0.4)
    assert (found["router_2"]["at"], found["router_2"]["audit"]) == (0.7, 0)
    assert (found["audited_1"]["at"], found["audited_1"]["audit"]) == (0.5, 0.1)
    assert (found["audited_1"]["agreement"], found["audited_1"]["rejected_share"]) == (0.75, 0.125)
    assert found["router_2"]["discordant_bound"] == 0.033
    costs = {"cost_for_95_percent", "cost_for_99_percent"}
    assert set(found["router_2"]["math"]) == {"accuracy", "llm_fraction", "cost_b1"} | costs
    assert set(found["slm"]["math"]) == {"accuracy", "llm_fraction", "cost_b1"}
    assert found["slm"]["bytes_per_answer_b1"] == 7.0
    assert not {"threshold", "visit", "accuracy_low", "bytes_per_answer_b8"} & set(found["slm"])


def test_the_summary_is_a_markdown_table_with_a_row_a_method():
    text = summary(standings(points(), CHOSEN), CHOSEN, [1, 8])
    table = text.splitlines()[: 2 + 8]
    assert all(line.startswith("|") for line in table)
    assert len({line.count("|") for line in table}) == 1
    assert "| router 2 " in table[6]
    assert "86.0% [81.0, 91.0]" in table[6]
    assert "1.100 (0.800)" in table[6]
    audited = [cell.strip() for cell in table[5].split("|")]
    assert audited[2:6] == ["audited 1", "82.0% [77.0, 87.0]", "0.050", "0.025"]
    assert "LLM fraction of router 2" in text.replace("\n", " ")
    assert "audited 1: `risk 0.5 audit 0.1` keeps" in text


def test_a_promise_names_its_numbers():
    said = promise("router_2", threshold("score 0.7"))
    assert said.startswith("router 2: `score 0.7` keeps P(routed wrong | LLM right) <= 0.033")
    assert "confidence 0.9 (3 of the 200 validation questions that the LLM has right)" in said
    assert "`risk 0.1235 audit 0.1`" in promise("audited_2", threshold("risk 0.12345 audit 0.1"))


def test_no_promise_is_said_plainly():
    assert "no rule that is cheaper than the LLM" in promise("router_1", alone())


def test_the_frontier_is_a_picture_with_the_same_bytes_every_time(tmp_path):
    for name in ("one.png", "two.png"):
        draw(points(), CHOSEN, tmp_path / name)
    image = (tmp_path / "one.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert image == (tmp_path / "two.png").read_bytes()
    assert b"tEXt" not in image


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"router": alone(), "audited": alone()}, id="none certified"),
        pytest.param({"router": threshold("score 0.8")}, id="no audits tried"),
    ],
)
def test_a_frontier_is_drawn_whatever_there_is_to_show(tmp_path, chosen):
    few = [
        p | {"method": p["method"].removesuffix("_1")}
        for p in points()
        if p["method"] not in ("speculative", "random", "router_2")
    ]
    draw(few, chosen, tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("risk 0.5 audit 0.1", (0.35, 0.82)),
        ("risk 0.5 audit 1", (0.45, 0.9)),
        ("risk 0.9 audit 0.1", (0.55, 0.88)),  # no efficient one
    ],
)
def test_a_star_marks_the_one_point_that_was_chosen(tmp_path, monkeypatch, rule, place):
    figures = []
    monkeypatch.setattr(picture.Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    draw(points(), CHOSEN | {"audited_1": threshold(rule)}, tmp_path / "frontier.png")
    for axes in figures[0].axes:
        (star,) = (
            line
            for line in axes.lines
            if line.get_marker() == "*" and "risk" in str(line.get_label())
        )
        assert list(zip(*star.get_data(), strict=True)) == [place]


def test_a_line_is_drawn_of_what_is_efficient_of_audits_and_of_all_else(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(picture.Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    draw(points(), CHOSEN, tmp_path / "frontier.png")
    drawn = {line.get_label(): list(line.get_xdata()) for line in figures[0].axes[0].lines}
    assert drawn["audited 1"] == [0.1, 0.35, 0.45]
    assert drawn["router 1"] == [0.1, 0.2, 0.5, 1.0]
    assert drawn["speculative"] == [0.7, 0.65, 0.9]
