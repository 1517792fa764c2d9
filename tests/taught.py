"""A tiny pair trained on a few problems. Its words differ from the references; some answers err.

Neither model would write the references, so every case of the labels' truth table occurs.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from citer.data.problems import Problem
from citer.models.folder import ModelFolder
from tests.padding import padded_batch
from tests.tiny import MATH, MC, TinyPair, make_tiny_pair

LABELS = "ABC"


def problems(count: int) -> list[Problem]:
    """Make sums and choices in turn."""
    return [(_choice if n % 2 else _sum)(n) for n in range(count)]


def _sum(n: int) -> Problem:
    a, b = 10 + 7 * n, 3 + 2 * n
    reference = f"So {a} + {b} = {a + b}. The answer is \\boxed{{{a + b}}}."
    return replace(
        MATH,
        problem_id=f"math-{n}",
        question=f"What is {a} + {b}?",
        reference=reference,
        answer=str(a + b),
    )


def _choice(n: int) -> Problem:
    label = LABELS[n % 3]
    return replace(
        MC,
        problem_id=f"mc-{n}",
        question=f"Which one is number {n}?",
        reference=f"So number {n} it is. The answer is ({label}).",
        answer=label,
    )


def make_taught_pair(folder: Path, taught: Sequence[Problem], steps: int = 30) -> TinyPair:
    """Train a pair. The SLM errs on every second problem of a task, the LLM on every third."""
    pair = make_tiny_pair(folder)
    _teach(
        pair.slm, [_in_own_words(p, "My", "", n // 2 % 2 == 0) for n, p in enumerate(taught)], steps
    )
    _teach(
        pair.llm,
        [_in_own_words(p, "Our", "!", n // 2 % 3 == 0) for n, p in enumerate(taught)],
        steps,
    )
    return pair


def _in_own_words(problem: Problem, whose: str, end: str, wrong: bool) -> Problem:
    """Change the words and the end of a reference for one model, and if `wrong` its answer."""
    words = problem.reference.removeprefix("So ").replace(" The ", f" {whose} ")[:-1] + end
    right = f"({problem.answer})" if problem.choices else f"{{{problem.answer}}}"
    given = "(D)" if problem.choices else "{1}"
    return replace(problem, reference=words.replace(right, given) if wrong else words)


def _teach(path: Path, taught: Sequence[Problem], steps: int) -> None:
    encoded = ModelFolder(path).prompts.encode_all(taught).values()
    batch = padded_batch([[*p, *r] for p, r in encoded])
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, (prompt_ids, _) in zip(labels, encoded, strict=True):
        row[: len(prompt_ids)] = -100
    network = AutoModelForCausalLM.from_pretrained(path).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(steps):
        network(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    network.save_pretrained(path)
