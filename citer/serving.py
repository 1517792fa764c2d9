"""Answering questions with a router: what `citer generate` and the registered model both do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from citer.config import PairParams
from citer.data.problems import Problem
from citer.data.prompts import Encoded, check_context, encode
from citer.decoding.answer import Answer, Counts, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, routed
from citer.errors import InputError
from citer.models.bundle import check_identity, folder_identity, read_bundle, read_card
from citer.models.folder import check_pair
from citer.models.pair import Pair, load_pair
from citer.rule import Rule

Advance = Callable[[float], None]

TOLD = ("completion", "truncated", *Counts._fields)


class Reply(NamedTuple):
    """A problem with its answer, and the answer's text."""

    problem: Problem
    answer: Answer
    completion: str

    @property
    def told(self) -> dict[str, Any]:
        """What a file or a server says of it, under the names in TOLD: text and counts."""
        said = (self.completion, self.answer.truncated, *self.answer.counts)
        return dict(zip(TOLD, said, strict=True))


@dataclass(frozen=True)
class Deployment:
    """A pair with the policy that routes between its models, `slots` questions at a time."""

    pair: Pair
    policy: Policy
    slots: int
    max_new_tokens: int
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def replies(
        self, problems: Sequence[Problem], advance: Advance = lambda _: None
    ) -> Iterator[Reply]:
        """Yield the answers in the problems' order; `advance` counts them as they finish.

        Another thread that asks waits until all are answered. Each problem must pass `check`.
        """
        finished: dict[int, Reply] = {}  # before one that was asked earlier
        due = 0
        with self._lock:
            for answer in self._engine.decode(self._requests(problems), self.policy):
                number = int(answer.key)
                text = self.pair.text(answer.token_ids)
                finished[number] = Reply(problems[number], answer, text)
                advance(1)
                while due in finished:
                    yield finished.pop(due)
                    due += 1

    def _requests(self, problems: Sequence[Problem]) -> Iterator[Request]:
        for number, problem in enumerate(problems):
            yield Request(str(number), tuple(self._prompt_ids(problem)))

    def check(self, problem: Problem) -> None:
        """Raise InputError where a problem leaves its answer too little of the context."""
        context = min(self.pair.slm.card.context, self.pair.llm.card.context)
        encoded = Encoded(self._prompt_ids(problem), [])
        check_context([("question", encoded)], context, self.max_new_tokens, "max_new_tokens")

    def _prompt_ids(self, problem: Problem) -> list[int]:
        return encode(problem, self.pair.tokenizer, self.pair.eos_id).prompt_ids

    @cached_property
    def _engine(self) -> Engine:
        """Kept from one call to the next with its caches and, on a GPU, its graphs."""
        return Engine(self.pair, self.slots, self.max_new_tokens, delayed=True)


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

    `slm` is read where the bundle carries none. Raises InputError, before any weight is loaded,
    where the bundle was made for another pair.
    """
    router, card = read_bundle(bundle)
    slm = served_slm(bundle, slm)
    check_pair(slm, llm)
    check_identity(card, folder_identity(slm, llm, params.dtype), bundle)
    pair = load_pair(slm, llm, params, (card["slm"]["digest"], card["llm"]["digest"]))
    return Deployment(pair, routed(router.to(pair.slm.device), rule), slots, max_new_tokens)


def served_slm(bundle: Path, slm: Path) -> Path:
    """The finetuned SLM that a bundle carries; else `slm`."""
    own = bundle / "slm"
    return own if own.is_dir() else slm


def stored_rule(bundle: Path) -> Rule:
    """The rule that a registered router was deployed with; InputError where there is none."""
    threshold = read_card(bundle).get("threshold")
    if not threshold:
        raise InputError(f"{bundle}: no rule in router.json: give --rule, or a registered router")
    return Rule(**threshold["rule"])
