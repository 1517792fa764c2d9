"""The oracle of exact routing: a bound, and no method, since it knows the LLM's answer in advance.

The SLM writes each token of the LLM's own answer that is also its own choice. The LLM is visited
only for the others. No rule that gives the same text visits less often, because a visit writes at
most one token. A relaxed rule may, since it may write another text.
Nothing is decoded: a forward of the SLM over each of the LLM's answers finds where the two differ.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from citer.decoding.answer import Visit
from citer.decoding.policy import always_slm
from citer.decoding.served import verifier_of
from citer.evaluation.bounds.bound import Alone, Bound, Setting
from citer.evaluation.cost import Trace
from citer.evaluation.methods import Kind, Style
from citer.evaluation.result import Result
from citer.evaluation.sweep import Line, Method, Run, choices, request
from citer.executors.base import Unit
from citer.executors.choose import run_one
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.progress import Advance, progress
from citer.rule import Rule

RULE = Rule("score", 0.5)  # the score is 1 where both choose the same token, else 0
STYLE = Style(Kind.BOUND, "#BBBBBB", "P")


def oracle_bound(setting: Setting) -> Bound:
    line = Line(Method("oracle", always_slm, style=STYLE), [])

    def finish(_: Sequence[Run], alone: Alone) -> list[Run]:
        job, own = partial(_compared, setting.pair, setting.sampler), alone.llm.results
        with progress("oracle on test", len(own), "answers") as advance:
            results = run_one(setting.executor, job, Unit("the oracle", own), advance)
        return [replace(alone.llm, method="oracle", rule=RULE, results=results, style=STYLE)]

    return Bound(line, finish)


def _compared(
    pair: Pair, sampler: Sampler, results: Sequence[Result], advance: Advance
) -> list[Result]:
    """Return the LLM's results, with a visit at each token that is not the SLM's choice."""
    verifier = verifier_of(pair.slm, pair.vocabulary)
    compared = []
    for result in results:
        asked = request(result.problem, pair, sampler)
        both = zip(choices(verifier, asked, result.token_ids), result.token_ids, strict=True)
        places = [n for n, (own, token) in enumerate(both) if own != token]
        visits = [Visit(at - last, at, at) for last, at in pairwise([-1, *places])]
        counts = result.counts._replace(llm_tokens=len(visits), visits=len(visits))
        trace = Trace.of(len(asked.prompt_ids), len(result.token_ids), visits)
        compared.append(result._replace(trace=trace, counts=counts))
        advance(1)
    return compared
