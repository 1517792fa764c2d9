"""The picture of the methods that the points name."""

from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from citer.evaluation.measure import ACCURACY, FIDELITY
from citer.evaluation.methods import Kind
from citer.report.figure import draw
from tests.reported import (
    CHOSEN,
    NOTHING_CERTIFIED,
    chosen_rule,
    chosen_with_made_up,
    made_up,
    points,
)


def test_the_frontier_is_a_picture_with_the_same_bytes_every_time(tmp_path):
    for name in ("one.png", "two.png"):
        draw(points(), CHOSEN, tmp_path / name, ACCURACY)
    image = (tmp_path / "one.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert image == (tmp_path / "two.png").read_bytes()
    assert b"tEXt" not in image


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(dict.fromkeys(("router_1", "audited_1"), NOTHING_CERTIFIED), id="nothing"),
        pytest.param({"router_1": chosen_rule("score 0.8")}, id="no audits tried"),
    ],
)
def test_a_frontier_is_drawn_without_certified_rules_and_without_audits(tmp_path, chosen):
    draw(points("entropy", *chosen), chosen, tmp_path / "frontier.png", ACCURACY)
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def figures(monkeypatch) -> list[Figure]:
    """Collect the figures that are drawn instead of writing files."""
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    return drawn


@pytest.mark.parametrize("kind", Kind)
def test_a_method_of_any_kind_that_has_points_is_named_in_the_picture(figures, kind):
    draw([*points(), *made_up(kind)], chosen_with_made_up(kind), Path("frontier.png"), ACCURACY)
    named = {text.get_text() for text in figures[0].axes[0].texts}
    models = {"SLM alone", "LLM alone"}
    others = {"speculative", "entropy", "random", "router 1", "audited 1", "router 2"}
    own = {"made up alone" if kind is Kind.ALONE else "made up"}
    assert models | others | own == named


def test_a_method_is_drawn_in_its_own_colour_and_marker(figures):
    draw([*points(), *made_up(Kind.RIVAL)], CHOSEN, Path("frontier.png"), ACCURACY)
    lines = {line.get_label(): line for line in figures[0].axes[0].lines}
    assert lines["router 2"].get_color() == "red"
    assert [lines[name].get_marker() for name in ("made up", "router 2")] == ["p", "s"]


def test_rivals_are_thinner_and_greyer_than_earlier_routers_and_these_than_the_last(figures):
    draw(points(), CHOSEN, Path("frontier.png"), ACCURACY)
    lines = {line.get_label(): line for line in figures[0].axes[0].lines}
    widths = [lines[name].get_linewidth() for name in ("entropy", "router 1", "router 2")]
    assert widths == sorted(set(widths))
    red, green, blue = to_rgb(lines["entropy"].get_color())  # a rival whose own colour is green
    assert green > red == blue > 0


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("risk 0.5 audit 0.1", (0.35, 0.82)),
        ("risk 0.5 audit 1", (0.45, 0.9)),
        ("risk 0.9 audit 0.1", (0.55, 0.88)),  # not an efficient point
    ],
)
def test_a_star_marks_only_the_chosen_point(figures, rule, place):
    chosen = {"audited_1": chosen_rule(rule), "router_2": CHOSEN["router_2"]}
    draw(points(), chosen, Path("frontier.png"), ACCURACY)
    assert f"audited 1 {rule}" in figures[0].get_supxlabel()
    for axes in figures[0].axes:
        (star,) = (
            line for line in axes.lines if line.get_marker() == "*" and line.get_color() == "blue"
        )
        assert list(zip(*star.get_data(), strict=True)) == [place]


def test_the_line_of_an_audited_method_joins_only_its_efficient_points(figures):
    draw(points(), CHOSEN, Path("frontier.png"), ACCURACY)
    drawn = {line.get_label(): list(line.get_xdata()) for line in figures[0].axes[0].lines}
    assert drawn["audited 1"] == [0.1, 0.35, 0.45]
    assert drawn["router 1"] == [0.1, 0.2, 0.5, 1.0]
    assert drawn["speculative"] == [0.7, 0.65, 0.9]


@pytest.mark.parametrize("measure", [ACCURACY, FIDELITY], ids=lambda measure: measure.name)
def test_the_picture_names_the_measure(figures, measure):
    draw(points(), CHOSEN, Path("frontier.png"), measure)
    whole, near = figures[0].axes
    assert whole.get_xscale() == "log"
    assert whole.get_ylabel() == f"{measure.name} on test"
    assert near.get_title() == f"the same, from 90% of the LLM's {measure.name} on"
