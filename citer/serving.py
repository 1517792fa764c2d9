"""Answering questions with a router: what `citer generate` and the registered model both do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from citer.config import PairParams
from citer.data.answers import grade
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.delay import usual_llm_batch
from citer.decoding.engine import Answer, Engine, Request
from citer.decoding.policy import Policy, routed
from citer.errors import InputError
from citer.models.bundle import check_card, read_bundle, read_card
from citer.models.pair import Pair, load_pair


@dataclass(frozen=True)
class Reply:
    """An answered problem, the `number`th asked; `correct` is None where no answer is known."""

    number: int
    problem: Problem
    answer: Answer
    completion: str
    correct: bool | None


@dataclass(frozen=True)
class Deployment:
    """A pair with the policy that routes between its models."""

    pair: Pair
    policy: Policy

    def replies(
        self, problems: Sequence[Problem], slots: int, max_new_tokens: int
    ) -> Iterator[Reply]:
        """Answer every problem, in the order in which they finish; a truncated one is wrong."""
        engine = Engine(self.pair, slots, max_new_tokens, usual_llm_batch(slots))
        requests = (self._request(number, problem) for number, problem in enumerate(problems))
        for answer in engine.decode(requests, self.policy):
            number = int(answer.key)
            completion, problem = self.pair.text(answer.token_ids), problems[number]
            yield Reply(number, problem, answer, completion, _correct(problem, answer, completion))

    def _request(self, number: int, problem: Problem) -> Request:
        prompt_ids = encode(problem, self.pair.tokenizer, self.pair.eos_id).prompt_ids
        return Request(str(number), tuple(prompt_ids))


def _correct(problem: Problem, answer: Answer, completion: str) -> bool | None:
    if problem.answer is None:
        return None
    return not answer.truncated and grade(problem, completion)


def deploy(bundle: Path, slm: Path, llm: Path, params: PairParams, tau: float | None) -> Deployment:
    """Load a router with its pair; `tau` stands in for the bundle's own.

    A bundle that carries its finetuned SLM (`bundle/slm`) brings it along; else `slm` is read.
    Raises InputError, before any weight is read, where the bundle has no τ and none is given, and
    where it was made for another pair.
    """
    threshold = tau if tau is not None else _stored_tau(bundle, read_card(bundle))
    own = bundle / "slm"
    pair = load_pair(own if own.is_dir() else slm, llm, params)
    router, card = read_bundle(bundle)
    check_card(card, pair, bundle)
    return Deployment(pair, routed(router.to(pair.slm.device), threshold))


def _stored_tau(bundle: Path, card: dict[str, Any]) -> float:
    if "threshold" not in card:
        raise InputError(f"{bundle}: no τ in router.json: give --tau, or a registered router")
    return float(card["threshold"]["tau"])
