"""The names of methods that each iteration has anew."""

import pytest

from citer.evaluation.candidates import STYLES
from citer.evaluation.methods import ANEW, numbered, of_last
from citer.report.frontier import OURS


def test_only_methods_whose_heads_learn_from_an_iterations_labels_get_its_number():
    named = {name: numbered(name, "3") for name in (*STYLES, "slm", "llm", "random")}
    anew = {name for name, own in named.items() if own != name}
    assert anew == set(ANEW) == {"router", "audited", "policy", "exact"}
    assert all(named[name] == f"{name}_3" for name in anew)
    assert {name for name, style in STYLES.items() if style.kind in OURS} < anew


@pytest.mark.parametrize(
    ("iteration", "kept"),
    [
        ("1", ["router_1", "bild", "llm"]),
        ("2", ["exact_2", "bild", "llm"]),
        ("12", ["router_12", "bild", "llm"]),
    ],
)
def test_the_methods_of_other_iterations_are_left_out(iteration, kept):
    names = ["router_1", "exact_2", "router_12", "bild", "llm"]
    assert list(of_last(dict.fromkeys(names), iteration)) == kept


def test_a_name_that_only_begins_like_a_numbered_one_is_kept():
    names = dict.fromkeys(["router", "router_x", "co_llm", "my_router_1", "router_2b"])
    assert of_last(names, "1") == names
