"""The candidates: every scorer of a router, with every visit and every audit.

Known methods are among them: CITER with other heads, CITER-S (`contested_llm`), Co-LLM, an entropy
threshold, BiLD (entropy with audits), speculative decoding (`every γ audit 1`). Those that always
give the LLM's own text are the method `exact`, all others the method `policy`.
"""

from collections.abc import Mapping, Sequence

from citer.config.params import EvaluateParams
from citer.decoding.policy import ENTROPY, ScoredBy, Scorer, always_slm, low_entropy
from citer.evaluation.methods import ITERATIONS, Kind, Style
from citer.evaluation.sweep import Line, Method
from citer.models.router import Router
from citer.rule import Rule, When

POLICY, EXACT = (Style(kind, *ITERATIONS[0]) for kind in (Kind.POLICY, Kind.EXACT))
Visits = Sequence[tuple[When, float]]


def scorers_of(router: Router) -> dict[str, Scorer]:
    """Return the scorers by their names in rules: the SLM's entropy, and all heads of a router."""
    heads = {name: ScoredBy(head) for name, head in router.heads.items()}
    return {ENTROPY: low_entropy, **heads}


def candidates(
    scorers: Mapping[str, Scorer], taus: Mapping[str, Sequence[float]], params: EvaluateParams
) -> list[Line]:
    """Make the lines of all scorers. `taus` has the thresholds of each."""
    lines = [_line("", always_slm, _every(params), beta) for beta in _betas(params)]
    for name, scorer in scorers.items():
        scored: Visits = [("score", tau) for tau in taus[name]]
        risky: Visits = [("risk", rho) for rho in params.risks]
        lines.append(_line(name, scorer, scored, 0))
        lines += [_line(name, scorer, [*scored, *risky], beta) for beta in _betas(params)]
    return lines


def _every(params: EvaluateParams) -> Visits:
    return [("every", gamma) for gamma in params.gammas]


def _betas(params: EvaluateParams) -> list[float]:
    return sorted({*params.audits, 1.0})


def _line(name: str, scorer: Scorer, visits: Visits, audit: float) -> Line:
    style = EXACT if audit == 1 else POLICY
    rules = [Rule(*visit, audit, name) for visit in visits]
    return Line(Method.of(style.kind.value, scorer, style), rules)
