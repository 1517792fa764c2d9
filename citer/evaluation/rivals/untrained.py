"""Rivals without training: they call the LLM by the SLM's entropy, at random, or every γ tokens.

With an audit of the pending tokens, entropy is like BiLD (Big Little Decoder, arXiv 2302.07863).
BiLD's fallback is a threshold on the largest probability. Its rollback compares the SLM's token
with the LLM's distribution by a fixed distance; here an audit by odds has this role.
"""

from functools import partial

from torch import Tensor

from citer.decoding.policy import Scorer, StepView, always_slm, low_entropy
from citer.evaluation.methods import Kind, Style
from citer.evaluation.rivals.rival import Rival, Setting, by_score
from citer.evaluation.sweep import Line, Method
from citer.models.router import HIGHEST
from citer.models.vocabulary import GOLDEN, mixed, shifted
from citer.rule import Rule, When


def entropy_rival(setting: Setting) -> Rival:
    """Make the rival that visits the LLM if the SLM's entropy is high."""
    method = Method("entropy", low_entropy, style=Style(Kind.RIVAL, "#009E73", "^"))
    return Rival(Line(method, by_score(setting.taus)))


def bild_rival(setting: Setting) -> Rival:
    """Make `entropy` with the audits of audited routing at each visit.

    It also visits by the product of the pending tokens' scores. BiLD itself has neither the entropy
    nor the product, but both make it a stronger rival.
    """
    method = Method("bild", low_entropy, style=Style(Kind.RIVAL, "#009E73", "<"))
    visits: list[tuple[When, float]] = [("score", tau) for tau in setting.taus]
    visits += [("risk", risk) for risk in setting.params.risks]
    audits = setting.params.audits
    return Rival(Line(method, [Rule(*visit, audit) for audit in audits for visit in visits]))


def random(seed: int) -> Scorer:
    """Make a scorer of uniform scores: with `score τ` the LLM writes a share τ of the tokens.

    A score is a hash of the seed, the request and the position. It does not depend on the batch or
    on the order of requests.
    """

    return partial(_uniform, seed)


def _uniform(seed: int, view: StepView) -> Tensor:
    counter_N = mixed(view.seed_N ^ seed) + GOLDEN * view.position_N
    return (shifted(mixed(counter_N), 40).float() * 2.0**-24).clamp(max=HIGHEST)


def random_rival(setting: Setting) -> Rival:
    """Make the rival that visits the LLM at random, with one rule at the middle LLM fraction.

    More rules would be slow, since their answers share few tokens. They would add little, since the
    frontier is almost straight.
    """
    fractions = setting.params.fractions
    middle = fractions[(len(fractions) - 1) // 2 :][:1]
    scorer = random(setting.sampler.seed)
    method = Method("random", scorer, style=Style(Kind.RIVAL, "#666666", "x"))
    return Rival(Line(method, by_score(middle)))


def speculative_rival(setting: Setting) -> Rival:
    """Make greedy speculative decoding (arXiv 2211.17192), a rule for each γ of drafts per visit.

    It gives the LLM's own answers. Reports show the cheapest.
    """
    method = Method("speculative", always_slm, style=Style(Kind.EXACT, "#E69F00", "v"))
    return Rival(Line(method, [Rule("every", gamma, audit=1) for gamma in setting.params.gammas]))
