"""The picture of the methods that the points name, and the frontier of the page."""

import re
from xml.etree import ElementTree

import pytest

from citer.evaluation.measure import ACCURACY, FIDELITY
from citer.evaluation.methods import Kind
from citer.report.charts import png, svg
from citer.report.frontier import alone_of, frontier_charts, lines_of, picture
from tests.reported import (
    CHOSEN,
    NOTHING_CERTIFIED,
    chosen_rule,
    chosen_with_made_up,
    made_up,
    points,
)

MODELS = {"SLM alone", "LLM alone"}
OURS = {"CITER"}  # of router 2, the last


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter() if element.text]


def described(drawn: str) -> dict[str, dict[str, str]]:
    """Return the attributes of each mark that has a description."""
    marks = (element.attrib for element in ElementTree.fromstring(drawn).iter())
    return {mark["aria-label"]: mark for mark in marks if "d" in mark and "aria-label" in mark}


def whole(drawn: list[dict], chosen: dict) -> str:
    charts = frontier_charts(lines_of(drawn, chosen), alone_of(drawn), ACCURACY)
    return svg(charts[0], "whole")


def test_the_picture_has_the_same_bytes_every_time_and_names_nothing_else():
    drawn = picture(points(), CHOSEN, ACCURACY)
    assert drawn == picture(points(), CHOSEN, ACCURACY)
    image = png(drawn)
    assert image == png(drawn)
    assert image.startswith(b"\x89PNG")
    assert b"tEXt" not in image
    assert not re.search(r"var\(|color-mix", drawn), "a colour of the page"


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(dict.fromkeys(("router_1", "audited_1"), NOTHING_CERTIFIED), id="nothing"),
        pytest.param({"router_1": chosen_rule("score 0.8")}, id="no audits tried"),
    ],
)
def test_a_picture_is_drawn_without_certified_rules_and_without_audits(chosen):
    drawn = picture(points("entropy", *chosen), chosen, ACCURACY)
    assert MODELS | {"entropy", "CITER"} <= {*texts(drawn)}


def test_the_picture_has_the_last_router_and_at_most_three_rivals():
    many = [
        *points(),
        *(p | {"method": f"rival_{n}"} for n in range(3) for p in made_up(Kind.RIVAL)),
    ]
    named = {*texts(picture(many, CHOSEN, ACCURACY))}
    assert MODELS | OURS | {"speculative", "entropy", "rival 0"} <= named
    assert not {"rival 1", "rival 2", "random"} & named
    assert not [name for name in named if name.startswith("router")]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.ALONE])
def test_a_method_of_any_kind_that_has_points_is_drawn_on_the_page(kind):
    drawn = described(whole([*points(), *made_up(kind)], chosen_with_made_up(kind)))
    lines = {"speculative", "entropy", "random", "router 1", "audited 1", "router 2", "made up"}
    assert lines <= set(drawn)


def test_a_method_is_drawn_in_its_own_colour():
    drawn = described(whole([*points(), *made_up(Kind.RIVAL)], CHOSEN))
    assert "(in srgb, purple " in drawn["made up"]["stroke"]
    assert "(in srgb, red " in drawn["router 2"]["stroke"]


def test_the_enlarged_chart_ends_at_the_llm_where_all_rules_cost_more():
    dear = [p if p["kind"] == Kind.ALONE else p | {"cost_b1": 1 + p["cost_b1"]} for p in points()]
    _, near = frontier_charts(lines_of(dear, CHOSEN), alone_of(dear), ACCURACY)
    assert near.to_dict()["encoding"]["x"]["scale"]["domain"] == [0.95, 1]


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("risk 0.5 audit 0.1", (0.35, 0.82)),
        ("risk 0.5 audit 1", (0.45, 0.9)),
        ("risk 0.9 audit 0.1", (0.55, 0.88)),  # not an efficient point
    ],
)
def test_only_the_chosen_point_is_marked(rule, place):
    drawn = lines_of(points(), {"audited_1": chosen_rule(rule), "router_2": CHOSEN["router_2"]})
    marked = {line.method: line.chosen for line in drawn if line.chosen}
    assert set(marked) == {"audited_1", "router_2"}
    assert (marked["audited_1"]["cost_b1"], marked["audited_1"]["accuracy"]) == place


def test_the_line_of_an_audited_method_joins_only_its_efficient_points():
    lines = lines_of(points(), CHOSEN)
    costs = {line.method: [point["cost_b1"] for point in line.points] for line in lines}
    assert costs["audited_1"] == [0.1, 0.35, 0.45]
    assert costs["router_1"] == [0.1, 0.2, 0.5, 1.0]
    assert costs["speculative"] == [0.7, 0.65, 0.9]


def test_a_line_of_two_scorers_joins_only_its_efficient_points():
    scored = [
        {**point, "by": by, "accuracy": point["accuracy"] - 0.5 * (by == "wide")}
        for point in made_up(Kind.RIVAL)
        for by in ("narrow", "wide")
    ]
    (line,) = [each for each in lines_of([*points(), *scored], CHOSEN) if each.method == "made_up"]
    drawn = {point["by"] for point in line.points if point["method"] == "made_up"}
    assert drawn == {"narrow"}


@pytest.mark.parametrize("measure", [ACCURACY, FIDELITY], ids=lambda measure: measure.name)
def test_the_picture_names_the_measure(measure):
    assert f"{measure.name} on test" in texts(picture(points(), CHOSEN, measure))
