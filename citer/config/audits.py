"""Settings of acceptance rules: their types, and which go together with the other settings."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from citer.rule import Rule

RuleText = Annotated[Rule, BeforeValidator(Rule.parse), PlainSerializer(str)]


def _audit(given: Any) -> float | str:
    """Check an entry of `evaluate.audits`. Raises ValueError."""
    try:
        if Rule.audited("risk", 0, given).audit:
            return given if isinstance(given, str) else float(given)
    except ValueError:
        pass
    expected = "β above 0 and at most 1, or a text such as `judge 0.9`, `kl 1.0` or `top 3`"
    raise ValueError(f"{given!r}: expected {expected}")


Audit = Annotated[float | str, BeforeValidator(_audit)]


def check_audits(
    label_rule: Rule, judge: bool, audits: Iterable[float | str], remote: bool, sampled: bool
) -> None:
    """Raise ValueError if `label.rule`, `label.judge` and `evaluate.audits` do not go together.

    `remote` is an LLM behind a server, `sampled` the evaluation.
    """
    tried = [Rule.audited("risk", 1.0, audit) for audit in audits]
    rules = [("label.rule", label_rule, False), *(("evaluate.audits", r, sampled) for r in tried)]
    for place, rule, samples in rules:
        if refusal := rule.refusal(samples, remote):
            raise ValueError(f"{place}: {refusal}")
    if remote and judge:
        raise ValueError("label.judge: expected false: it reads an LLM that is loaded here")
    if not judge and any(rule.by == "judge" for rule in tried):
        raise ValueError("evaluate.audits: `judge` needs its head, expected label.judge: true")
    if label_rule.by == "judge":
        raise ValueError(f"label.rule: `{label_rule}`: router 0 has no head `judge`")
