"""Numbers and short texts of the page."""

from citer.evaluation.measure import Measure
from citer.evaluation.methods import Row, label
from citer.evaluation.points import rule_of

MEANINGS = {  # of the rivals' names, for readers without the documentation
    "entropy": "calls the LLM where the SLM's next token has a high entropy",
    "random": "calls the LLM at random",
    "speculative": "the LLM checks every few drafts, and each answer is the LLM's own",
    "bild": "entropy, and the LLM rejects unlikely drafts",
    "co_llm": "a head that learns to defer by the likelihood of the reference",
    "citer_s": "the same router, trained without finishing contested answers",
    "query": "chooses one model for the whole answer",
    "oracle": "no method but a bound: it knows where the SLM differs from the LLM",
}


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def interval(row: Row) -> str:
    """Return the 95 % interval of a row's accuracy."""
    return f"[{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}]"


def point_tip(point: Row, measure: Measure) -> str:
    return (
        f"{label(point['method'])} · {rule_of(point):.4g}\n"
        f"{measure.name} {percent(point['accuracy'])} {interval(point)}\n"
        f"cost {point['cost_b1']:.3f} · LLM wrote {percent(point['llm_fraction'])}"
    )
