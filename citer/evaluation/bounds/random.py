"""Random routing: the LLM is called by chance."""

from functools import partial

from torch import Tensor

from citer.decoding.policy import Scorer, StepView
from citer.evaluation.bounds.bound import Bound, Setting
from citer.evaluation.methods import Kind, Style
from citer.evaluation.sweep import Line, Method
from citer.models.router import HIGHEST
from citer.models.vocabulary import GOLDEN, mixed, shifted
from citer.rule import Rule


def random(seed: int) -> Scorer:
    """Make a scorer of uniform scores: with `score τ` the LLM writes a share τ of the tokens.

    A score is a hash of the seed, the request and the position. It does not depend on the batch or
    on the order of requests.
    """

    return partial(_uniform, seed)


def _uniform(seed: int, view: StepView) -> Tensor:
    counter_N = mixed(view.seed_N ^ seed) + GOLDEN * view.position_N
    return (shifted(mixed(counter_N), 40).float() * 2.0**-24).clamp(max=HIGHEST)


def random_bound(setting: Setting) -> Bound:
    """Make the bound with one rule at the middle LLM fraction.

    More rules would be slow, since their answers share few tokens. They would add little, since the
    frontier is almost straight.
    """
    fractions = setting.params.fractions
    middle = fractions[(len(fractions) - 1) // 2 :][:1]
    scorer = random(setting.sampler.seed)
    method = Method("random", scorer, style=Style(Kind.BOUND, "#666666", "x"))
    return Bound(Line(method, [Rule("score", share) for share in middle]))
