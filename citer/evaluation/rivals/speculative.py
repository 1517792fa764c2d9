"""Greedy speculative decoding (arXiv 2211.17192). It gives the LLM's own answers."""

from citer.decoding.policy import always_slm
from citer.evaluation.methods import Kind, Style
from citer.evaluation.rivals.rival import Rival, Setting
from citer.evaluation.sweep import Line, Method
from citer.rule import Rule


def speculative_rival(setting: Setting) -> Rival:
    """Make the rival with γ drafts per visit, a rule for each γ. Reports show the cheapest."""
    method = Method("speculative", always_slm, style=Style(Kind.EXACT, "#E69F00", "v"))
    return Rival(Line(method, [Rule("every", gamma, audit=1) for gamma in setting.params.gammas]))
