"""Hand-written points of a few methods, and the rules that were chosen on them."""

from citer.evaluation.choice import ChosenRule
from citer.evaluation.methods import Kind, Style
from citer.evaluation.points import rule_columns
from citer.rule import LLM, Rule

LINES = [
    ("slm", "score 0", 0.0, 0.4, 0.1),
    ("llm", "score 1", 1.0, 0.9, 1.0),
    ("entropy", "score 0.9 by entropy", 0.5, 0.8, 0.6),
    ("random", "score 0.2", 0.2, 0.5, 0.3),
    ("random", "score 0.5", 0.5, 0.6, 0.6),
    ("speculative", "every 2 audit 1", 0.5, 0.9, 0.7),
    ("speculative", "every 4 audit 1", 0.3, 0.9, 0.65),
    ("speculative", "every 8 audit 1", 0.2, 0.9, 0.9),
    ("router_1", "score 0.8", 0.4, 0.8, 0.5),
    ("router_1", "score 0.3", 0.1, 0.6, 0.2),
    ("audited_1", "risk 0.5 audit 0.1", 0.05, 0.82, 0.35),
    ("audited_1", "risk 0.9 audit 0.1", 0.06, 0.88, 0.55),
    ("audited_1", "risk 0.5 audit 1", 0.08, 0.9, 0.45),
    ("audited_1", "risk 0.2 audit 1", 0.08, 0.81, 0.4),
    ("router_2", "score 0.7", 0.3, 0.86, 0.4),
]
STYLES = {
    "slm": Style(Kind.ALONE, "black", "o"),
    "llm": Style(Kind.ALONE, "black", "o"),
    "entropy": Style(Kind.RIVAL, "green", "^"),
    "random": Style(Kind.BOUND, "grey", "x"),
    "speculative": Style(Kind.EXACT, "orange", "v"),
    "router_1": Style(Kind.ROUTER, "blue", "o"),
    "audited_1": Style(Kind.AUDITED, "blue", "o"),
    "router_2": Style(Kind.ROUTER, "red", "s"),
}


def points(*methods: str, task: str = "all") -> list[dict]:
    """Make the points of these methods, or of all, and of each model alone."""
    named = {"slm", "llm", *methods} if methods else STYLES.keys()
    return [
        point(STYLES[method], method, Rule.parse(rule), *numbers, task)
        for method, rule, *numbers in LINES
        if method in named
    ]


def point(
    style: Style,
    method: str,
    rule: Rule,
    fraction: float,
    accuracy: float,
    cost: float,
    task: str = "all",
) -> dict:
    """Make a row of the POINT table."""
    audited = bool(rule.audit)
    return {
        "method": method,
        **style._asdict(),
        "split": "test",
        "task": task,
        **rule_columns(rule),
        "questions": 100,
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.05,
        "accuracy_high": accuracy + 0.05,
        "mean_share": accuracy,
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


def chosen_rule(rule: str, cost: float = 0.4, *, deployed: bool = False) -> ChosenRule:
    return ChosenRule(Rule.parse(rule), 200, 3, 0.3, cost, 0.05, 0.1, 0.033, True, deployed)


NOTHING_CERTIFIED = ChosenRule(LLM, 0, 0, 1.0, 1.0, 0.05, 0.1, 0.0, False, deployed=True)
CHOSEN = {
    "router_1": chosen_rule("score 0.8"),
    "audited_1": chosen_rule("risk 0.5 audit 0.1"),
    "entropy": chosen_rule("score 0.9 by entropy", 0.6),
    "speculative": chosen_rule("every 4 audit 1", 0.65),
    "router_2": chosen_rule("score 0.7", 0.35, deployed=True),
}


def made_up(kind: Kind, task: str = "all") -> list[dict]:
    """Make points of a new method of this kind: two rules, or one for a model alone."""
    style = Style(kind, "purple", "p")
    bold = point(style, "made_up", Rule("score", 0.4), 0.2, 0.6, 0.45, task)
    safe = point(style, "made_up", Rule("score", 0.6), 0.4, 0.7, 0.55, task)
    return [safe] if kind is Kind.ALONE else [bold, safe]


def chosen_with_made_up(kind: Kind) -> dict[str, ChosenRule]:
    own = {"made_up": chosen_rule("score 0.6")}
    return CHOSEN | ({} if kind in (Kind.ALONE, Kind.BOUND) else own)
