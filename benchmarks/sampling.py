"""Measure sampled decoding with noise that both models share.

    python -m benchmarks.sampling      # after `citer run`

Writes `benchmarks/results/sampling.{json,md}`, for answers at `SAMPLING`:

- exact: how many answers by rules with audit 1 equal the LLM's own samples, token for token, in
  float64. The heads are those of the last iteration.
- acceptance: how often both models choose the same token at the positions of the LLM's answers.
  `formula` is the probability of this under Gumbel noise, Σ_i 1 / Σ_j max(p_j / p_i, q_j / q_i).
  `optimal` is that of the best coupling, 1 - TV. `bound` is (1 - TV) / (1 + TV), which the formula
  cannot fall below (arXiv 2408.07978).
- cost: as in `benchmarks.audited`, but an answer is right if it is the same as the LLM's sample
  (`Task.same`), and all methods sample. Questions that the LLM does not finish are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import audited
from benchmarks.workshop import Workshop
from citer.config.params import SamplingParams
from citer.data.problems import Problem
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, routed
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import LanguageModel, Pair, load_pair
from citer.models.sampling import Sampler
from citer.models.vocabulary import perturbed
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import replacing, write_json

SAMPLING = SamplingParams(temperature=0.7, top_p=0.9)
SEED = 17
QUESTIONS = 500  # of each task: the first ones of the test questions
EXACT = [Rule("risk", 0.9, 1), Rule("risk", 0.5, 1), Rule("every", 4, 1), Rule("every", 16, 1)]
RESULTS = Path("benchmarks/results")


class Samples(NamedTuple):
    """The LLM's samples for a task's questions, and how many answers by each rule equal them."""

    own: Sequence[tuple[Request, Answer]]
    equal: dict[str, int]


def exact(shop: Workshop, pair: Pair, problems: Sequence[Problem]) -> Samples:
    router, _ = read_bundle(paths.router(max(map(int, shop.params.iterations))))
    policies = [LLM_ALONE, *(routed(router, rule) for rule in EXACT)]
    requests = {each.problem_id: request(each, pair, shop.sampler) for each in problems}
    limits = shop.params.evaluate
    engine = Engine(pair, limits.slots, limits.max_new_tokens, delayed=True)
    found = {
        (answer.key, answer.policy): answer for answer in engine.sweep(requests.values(), policies)
    }
    own = {key: found[key, LLM_ALONE] for key in requests}
    equal = {
        f"{policy.rule:.4g}": sum(found[key, policy].token_ids == own[key].token_ids for key in own)
        for policy in policies[1:]
    }
    return Samples([(requests[key], answer) for key, answer in own.items()], equal)


@torch.inference_mode()
def acceptance(pair: Pair, answers: Sequence[tuple[Request, Answer]]) -> dict[str, float]:
    """Return the means over all positions of the LLM's answers."""
    rows = [row for asked, answer in answers for row in _positions(pair, asked, answer)]
    means = np.mean(rows, axis=0).tolist()
    names = ("equal", "formula", "optimal", "bound")
    return {"positions": len(rows), **dict(zip(names, means, strict=True))}


def _positions(pair: Pair, asked: Request, answer: Answer) -> list[tuple[float, ...]]:
    ids, begin = [*asked.prompt_ids, *answer.token_ids], len(asked.prompt_ids)
    slm, llm = (_distribution(pair, model, asked, ids) for model in (pair.slm, pair.local_llm))
    assert llm.choice_N.tolist() == ids[begin:], f"{asked.key}: not the LLM's own answer"
    equal_N = slm.choice_N == llm.choice_N
    overlap_N = torch.minimum(slm.chance_NV, llm.chance_NV).sum(1)  # 1 - TV
    formula = map(_shared_noise, slm.chance_NV, llm.chance_NV)
    bound_N = overlap_N / (2 - overlap_N)
    return list(zip(equal_N.tolist(), formula, overlap_N.tolist(), bound_N.tolist(), strict=True))


class Distribution(NamedTuple):
    """What a model chooses at N positions, and with which probabilities."""

    choice_N: Tensor
    chance_NV: Tensor


def _distribution(
    pair: Pair, model: LanguageModel, asked: Request, ids: Sequence[int]
) -> Distribution:
    begin, sampling = len(asked.prompt_ids), asked.sampling
    assert sampling, f"{asked.key}: greedy"
    hidden_1TH = model.last_hidden(input_ids=torch.tensor([ids[:-1]]), use_cache=False)
    logits_NV = pair.vocabulary.choices(model.logits(hidden_1TH[0, begin - 1 :]))
    numbers = [sampling.numbers(position) for position in range(begin, len(ids))]
    z_NV = perturbed(logits_NV, torch.tensor(numbers))
    dropped_NV = z_NV == torch.finfo(z_NV.dtype).min
    scaled_NV = (logits_NV / sampling.temperature).masked_fill(dropped_NV, -torch.inf)
    return Distribution(z_NV.argmax(1), scaled_NV.softmax(1))


def _shared_noise(p_V: Tensor, q_V: Tensor) -> float:
    """Return the probability that argmax(log p + g) = argmax(log q + g)."""
    either_V, both_V = (p_V > 0) | (q_V > 0), (p_V > 0) & (q_V > 0)
    ratios = (chance_V[either_V] / chance_V[both_V][:, None] for chance_V in (p_V, q_V))
    return float((1 / torch.maximum(*ratios).sum(1)).sum())


def faithful(shop: Workshop) -> Workshop:
    """Return the workshop with the LLM's samples as the right answers of the test questions."""
    requests = (request(problem, shop.pair, shop.sampler) for problem in shop.test)
    own = {answer.key: answer for answer in shop.engine.decode(requests, LLM_ALONE)}
    finished = [problem for problem in shop.test if not own[problem.problem_id].truncated]
    texts = [shop.pair.text(own[problem.problem_id].token_ids) for problem in finished]
    test = [
        replace(problem, answer=None, reference=text, written_by="llm")
        for problem, text in zip(finished, texts, strict=True)
    ]
    return replace(shop, test=test)


def cost(shop: Workshop) -> dict[str, Any]:
    answered = audited.study(shop)
    return {task: audited.summary(answered, in_task_Q) for task, in_task_Q in shop.tasks.items()}


def write(results: Mapping[str, Any], file: TextIO) -> None:
    console = Console(file=file, width=160)
    for title in ("exact", "acceptance"):
        print(f"### {title}\n", file=file)
        console.print(_table(results[title]))
        print(file=file)
    audited.write(results["cost"], file)


def _table(shares: Mapping[str, Mapping[str, float]]) -> Table:
    columns = next(iter(shares.values()))
    table = Table("task", *columns, box=box.MARKDOWN)
    for task, row in shares.items():
        table.add_row(task, *(f"{row[column]:.6g}" for column in columns))
    return table


def main() -> None:
    shop = replace(Workshop.open(), sampler=Sampler(SAMPLING, SEED))
    by_task = {
        task: list(compress(shop.test, in_task_Q))[:QUESTIONS]
        for task, in_task_Q in shop.tasks.items()
    }
    shop = replace(shop, test=[problem for problems in by_task.values() for problem in problems])
    double = shop.params.pair.model_copy(update={"dtype": "float64"})
    pair = load_pair(finetuned_pair(shop.params), double)
    results: dict[str, Any] = {"exact": {}, "acceptance": {}}
    for task, problems in by_task.items():
        samples = exact(shop, pair, problems)
        results["exact"][task] = {"questions": len(problems), **samples.equal}
        results["acceptance"][task] = acceptance(pair, samples.own)
    results["cost"] = cost(faithful(shop))
    write_json(RESULTS / "sampling.json", results)
    with replacing(RESULTS / "sampling.md") as aside, aside.open("w") as file:
        write(results, file)
    print((RESULTS / "sampling.md").read_text())


if __name__ == "__main__":
    main()
