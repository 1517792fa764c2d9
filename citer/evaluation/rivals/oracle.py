"""The oracle of exact routing: a bound, and no method, since it knows the LLM's answer in advance.

The SLM writes each token of the LLM's own answer that is also its own choice. The LLM is visited
only for the others. No rule that gives the same text visits less often, because a visit writes at
most one token. A relaxed rule may, since it may write another text.
Nothing is decoded: one forward of the SLM over the LLM's answers finds where the two differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from citer.decoding.answer import Visit
from citer.decoding.policy import always_slm
from citer.evaluation.cost import Trace
from citer.evaluation.methods import Kind, Style
from citer.evaluation.result import Result
from citer.evaluation.rivals.rival import Alone, Rival, Setting
from citer.evaluation.sweep import Line, Method, Run, request
from citer.models.forced import Text, predict
from citer.models.pair import Pair
from citer.models.sampling import Sampling, noise
from citer.rule import Rule

RULE = Rule("score", 0.5)  # the score is 1 where both choose the same token, else 0
TEXTS = 64  # of a forward
STYLE = Style(Kind.BOUND, "#BBBBBB", "P")


def oracle_rival(setting: Setting) -> Rival:
    line = Line(Method("oracle", always_slm, style=STYLE), [])

    def finish(_: Sequence[Run], alone: Alone) -> list[Run]:
        own = alone.llm.results
        parts = (own[start : start + TEXTS] for start in range(0, len(own), TEXTS))
        results = [each for part in parts for each in _results(setting, part)]
        return [replace(alone.llm, method="oracle", rule=RULE, results=results, style=STYLE)]

    return Rival(line, finish)


def _results(setting: Setting, results: Sequence[Result]) -> Iterator[Result]:
    pair = setting.pair
    requests = [request(result.problem, pair, setting.sampler) for result in results]
    texts = [
        Text([*asked.prompt_ids, *result.token_ids], len(asked.prompt_ids))
        for asked, result in zip(requests, results, strict=True)
    ]
    chosen = _choices(pair, texts, [asked.sampling for asked in requests])
    for text, result in zip(texts, results, strict=True):
        places = [n for n, token in enumerate(result.token_ids) if next(chosen) != token]
        before = [-1, *places]
        visits = [Visit(at - last, at, at) for last, at in zip(before, places, strict=False)]
        counts = result.counts._replace(llm_tokens=len(visits), visits=len(visits))
        trace = Trace.of(text.first, len(result.token_ids), visits)
        yield result._replace(trace=trace, counts=counts)


@torch.inference_mode()
def _choices(
    pair: Pair, texts: Sequence[Text], samplings: Sequence[Sampling | None]
) -> Iterator[int]:
    """Yield the SLM's choice at each predicted position of the texts."""
    draws = [
        numbers
        for (ids, first), sampling in zip(texts, samplings, strict=True)
        for numbers in noise(sampling, range(first, len(ids)))
    ]
    start = 0
    for hidden_CH, logits_CV, *_ in predict(pair.slm, pair.vocabulary, texts):
        if draws:
            rows = enumerate(draws[start : start + len(hidden_CH)])
            noise_C6 = torch.tensor([(n, *own) for n, own in rows], device=hidden_CH.device)
            logits_CV = pair.vocabulary.choices(pair.slm.logits(hidden_CH), noise_C6)
        start += len(hidden_CH)
        yield from logits_CV.argmax(-1).tolist()
