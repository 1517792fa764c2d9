"""Random visits: what an LLM fraction is worth without any choice of the tokens."""

from functools import partial

from torch import Tensor

from citer.decoding.policy import Scorer, StepView
from citer.evaluation.methods import Kind, Style
from citer.evaluation.rivals.rival import Rival, Setting, by_score
from citer.evaluation.sweep import Line, Method
from citer.models.router import HIGHEST
from citer.models.vocabulary import GOLDEN, mixed, shifted


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
    fractions = setting.fractions
    middle = fractions[(len(fractions) - 1) // 2 :][:1]
    scorer = random(setting.params.seed)
    method = Method("random", scorer, style=Style(Kind.RIVAL, "#666666", "x"))
    return Rival(Line(method, by_score(middle)))
