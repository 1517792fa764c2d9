"""The names of methods that each iteration has anew."""

from citer.evaluation.candidates import STYLES
from citer.evaluation.methods import ANEW, numbered
from citer.report.frontier import OURS


def test_only_methods_whose_heads_learn_from_an_iterations_labels_get_its_number():
    named = {name: numbered(name, "3") for name in (*STYLES, "slm", "llm", "random")}
    anew = {name for name, own in named.items() if own != name}
    assert anew == set(ANEW) == {"router", "audited", "policy", "exact"}
    assert all(named[name] == f"{name}_3" for name in anew)
    assert {name for name, style in STYLES.items() if style.kind in OURS} < anew
