"""Compare scoring and labelling with the per-token algorithm of the published code.

The per-token algorithm runs both models over every prefix of the reference, with a whole forward
each, and finishes every contested answer with whole forwards. It uses our truth table and tie
rule, so that the labels are equal. The published code also rolls out tokens on which both models
agree.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import torch

from benchmarks.pairs import SEED, Subject
from benchmarks.report import Finding, Target, of_two, race
from citer.config.params import Params, load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tasks.grading import grade
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.demo import toy
from citer.executors.choose import executor_for
from citer.labelling.labeller import Labeller, label_in_chunks
from citer.labelling.rollout import Rollout
from citer.labelling.scoring import half, score
from citer.models.pair import LanguageModel, Pair
from citer.models.vocabulary import Vocabulary

PROBLEMS, NAIVE_PROBLEMS = 200, 20


def against_per_token(subject: Subject) -> list[Finding]:
    """Row 7: problems per second under router 0. The per-token algorithm runs on a few of them."""
    params = load_params()
    problems = _toy_problems(params)
    few = problems[:: len(problems) // NAIVE_PROBLEMS]

    def labelled() -> int:
        _label_all(subject.pair, problems, params)
        return len(problems)

    def naively() -> int:
        examples = subject.pair.prompts.encode_all(few)
        for problem, example in zip(few, examples.values(), strict=True):
            label_naively(subject.pair, problem, example, params.label.max_new_tokens)
        return len(few)

    timed = race("score and label", {"ours": labelled, "naive": naively})
    what = f"score + label, {len(problems)} problems / per token, {len(few)} problems"
    return [of_two(7, what, subject.name, timed, Target("≥", 50), "problems")]


def _toy_problems(params: Params) -> list[Problem]:
    toys = params.prepare.toy
    tasks = toys.tasks if toys else tuple(toy.FAMILIES)
    return [
        parse_row(row, task, "reference")
        for task in tasks
        for row in toy.rows(task, PROBLEMS // len(tasks), SEED, part="pipeline")
    ]


def _label_all(pair: Pair, problems: Sequence[Problem], params: Params) -> pa.Table:
    """Return the preference table under router 0, made by the library."""
    examples = pair.prompts.encode_all(problems)
    halves = [
        score(half(model, pair.vocabulary), examples, params.score.batch_tokens, lambda _: None)
        for model in (pair.slm, pair.local_llm)
    ]
    tokens = pa.table({name: part[name] for part in halves for name in part.column_names})
    engine = Engine(pair, params.label.slots, params.label.max_new_tokens)
    by_id = {problem.problem_id: problem for problem in problems}
    rollout = Rollout(engine, SLM_ALONE, params.label.tie)
    labeller = Labeller(by_id, examples, rollout, iteration=1)
    with TemporaryDirectory() as folder:
        return label_in_chunks(executor_for(pair), labeller, tokens, Path(folder))


def label_naively(pair: Pair, problem: Problem, example: Encoded, new_tokens: int) -> list[int]:
    """Return one label per token of the reference. If both branches end wrong, it is 1."""
    prompt_ids, reference_ids = example
    labels = []
    for position, truth in enumerate(reference_ids):
        before = reference_ids[:position]
        slm_token, llm_token = (
            _predict(model, [*prompt_ids, *before], pair.vocabulary)
            for model in (pair.slm, pair.local_llm)
        )
        if truth in (slm_token, llm_token) or slm_token == llm_token:
            labels.append(int(truth == slm_token or truth != llm_token))
        else:
            labels.append(
                int(
                    _ends_right(pair, problem, prompt_ids, [*before, slm_token], new_tokens)
                    or not _ends_right(pair, problem, prompt_ids, [*before, llm_token], new_tokens)
                )
            )
    return labels


def _ends_right(
    pair: Pair, problem: Problem, prompt_ids: list[int], written: list[int], new_tokens: int
) -> bool:
    """Let the SLM finish the answer, as router 0 does, and grade it."""
    for _ in range(new_tokens):
        if written[-1] in pair.eos_ids:
            return grade(problem, pair.text(written))
        written = [*written, _predict(pair.slm, [*prompt_ids, *written], pair.vocabulary)]
    return written[-1] in pair.eos_ids and grade(problem, pair.text(written))


@torch.inference_mode()
def _predict(model: LanguageModel, ids: Sequence[int], vocabulary: Vocabulary) -> int:
    """Return the model's next token, from a forward over all ids."""
    ids_1T = torch.tensor([ids], device=model.device)
    hidden_1TH = model.network.base_model(input_ids=ids_1T, use_cache=False).last_hidden_state
    return int(vocabulary.choices(model.logits(hidden_1TH[:, -1])).argmax())
