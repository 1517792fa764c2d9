"""Answering questions with a router: what `citer generate` and the registered model both do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from citer.config import PairParams
from citer.data.answers import grade
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.answer import Answer, Request
from citer.decoding.delay import usual_llm_batch
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, routed
from citer.errors import InputError
from citer.models.bundle import check_card, read_bundle, read_card
from citer.models.pair import Pair, load_pair
from citer.rule import Rule


@dataclass(frozen=True)
class Reply:
    """An answered problem, the `number`th asked; `correct` is None where no answer is known."""

    number: int
    problem: Problem
    answer: Answer
    completion: str
    correct: bool | None

    @property
    def told(self) -> dict[str, Any]:
        """What whoever asked is told, in a file or by a server: text and counts."""
        counted = self.answer.counts._asdict()
        return {"completion": self.completion, "truncated": self.answer.truncated, **counted}


@dataclass(frozen=True)
class Deployment:
    """A pair with the policy that routes between its models, `slots` questions at a time."""

    pair: Pair
    policy: Policy
    slots: int
    max_new_tokens: int
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def replies(self, problems: Sequence[Problem]) -> Iterator[Reply]:
        """Answer every problem, in the order in which they finish; a truncated one is wrong.

        Another thread that asks waits until all are answered.
        """
        requests = (self._request(number, problem) for number, problem in enumerate(problems))
        with self._lock:
            for answer in self._engine.decode(requests, self.policy):
                yield _reply(problems[int(answer.key)], answer, self.pair.text(answer.token_ids))

    @cached_property
    def _engine(self) -> Engine:
        """Kept from one call to the next with its caches and, on a GPU, its graphs."""
        return Engine(self.pair, self.slots, self.max_new_tokens, usual_llm_batch(self.slots))

    def _request(self, number: int, problem: Problem) -> Request:
        prompt_ids = encode(problem, self.pair.tokenizer, self.pair.eos_id).prompt_ids
        return Request(str(number), tuple(prompt_ids))


def _reply(problem: Problem, answer: Answer, completion: str) -> Reply:
    correct = None
    if problem.answer is not None:
        correct = not answer.truncated and grade(problem, completion)
    return Reply(int(answer.key), problem, answer, completion, correct)


def deploy(
    bundle: Path,
    slm: Path,
    llm: Path,
    params: PairParams,
    rule: Rule,
    *,
    slots: int,
    max_new_tokens: int,
) -> Deployment:
    """Load a router with its pair, to route by `rule`.

    A bundle that carries its finetuned SLM (`bundle/slm`) brings it along; else `slm` is read.
    Raises InputError where the bundle was made for another pair.
    """
    router, card = read_bundle(bundle)
    own = bundle / "slm"
    pair = load_pair(own if own.is_dir() else slm, llm, params)
    check_card(card, pair, bundle)
    return Deployment(pair, routed(router.to(pair.slm.device), rule), slots, max_new_tokens)


def stored_rule(bundle: Path) -> Rule:
    """The rule that a registered router was deployed with; InputError where there is none."""
    card = read_card(bundle)
    if "threshold" not in card:
        raise InputError(f"{bundle}: no rule in router.json: give --rule, or a registered router")
    return Rule(**card["threshold"]["rule"])
