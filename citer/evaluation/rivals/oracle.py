"""The oracle of exact routing: a bound, and no method, since it knows the LLM's answer in advance.

The SLM writes each token of the LLM's own answer that is also its own choice. The LLM is visited
only for the others. No rule that gives the same text visits less often, because a visit writes at
most one token. A relaxed rule may, since it may write another text.
Nothing is decoded: one forward of the SLM over the LLM's answers finds where the two differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

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
from citer.models.sampling import Sampler, Sampling, noise
from citer.rule import Rule

RULE = Rule("score", 0.5)  # the score is 1 where both choose the same token, else 0
TEXTS = 64  # of a forward
STYLE = Style(Kind.BOUND, "#BBBBBB", "P")


def oracle_rival(setting: Setting) -> Rival:
    line = Line(Method("oracle", always_slm, style=STYLE), [])
    return Rival(line, partial(_runs, setting.pair, setting.sampler))


def _runs(pair: Pair, sampler: Sampler, runs: Sequence[Run], alone: Alone) -> list[Run]:
    llm = alone.llm
    results = [
        each
        for start in range(0, len(llm.results), TEXTS)
        for each in _results(pair, sampler, llm.results[start : start + TEXTS])
    ]
    return [replace(llm, method="oracle", rule=RULE, results=results, style=STYLE)]


def _results(pair: Pair, sampler: Sampler, results: Sequence[Result]) -> Iterator[Result]:
    """Yield the oracle's result for each of the LLM's own."""
    requests = [request(result.problem, pair, sampler) for result in results]
    texts = [
        Text([*asked.prompt_ids, *result.token_ids], len(asked.prompt_ids))
        for asked, result in zip(requests, results, strict=True)
    ]
    chosen = _choices(pair, texts, [asked.sampling for asked in requests])
    for text, result in zip(texts, results, strict=True):
        own = [next(chosen) for _ in result.token_ids]
        yield _visited(result, text.first, own)


def _visited(result: Result, prompt_len: int, own: Sequence[int]) -> Result:
    """Visit the LLM where the SLM's `own` choice differs from the LLM's token."""
    places = [n for n, token in enumerate(result.token_ids) if own[n] != token]
    before = [-1, *places]
    visits = [Visit(at - last, at, at) for last, at in zip(before, places, strict=False)]
    counts = result.counts._replace(llm_tokens=len(visits), visits=len(visits))
    trace = Trace.of(prompt_len, len(result.token_ids), visits)
    return result._replace(trace=trace, counts=counts)


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
