"""Answer questions with a router. `citer generate` and the registered model share this code."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from citer.config.pair import PairParams
from citer.config.params import DecodeParams
from citer.data.problems import Problem
from citer.decoding.answer import Answer, Counts, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, routed
from citer.errors import InputError
from citer.models.bundle import check_identity, read_bundle, read_card
from citer.models.folder import Carded, ModelFolder, PairFolder
from citer.models.pair import LanguageModel, Pair, load_pair
from citer.models.room import check_characters, check_fits
from citer.models.router import Router
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.models.served import PATIENCE, llm_folder
from citer.progress import Advance, warn
from citer.rule import Rule
from citer.serving.untrained import NO_HEAD, certain
from citer.stages import paths

REPLY_FIELDS = ("completion", "truncated", *Counts._fields)


class Reply(NamedTuple):
    """A problem, its answer and the answer's text. The last fields are as in the schema AUDITED."""

    problem: Problem
    answer: Answer
    completion: str
    request: str | None = None
    user: str | None = None
    reference: str | None = None  # if a shadow answer has told it

    @property
    def fields(self) -> dict[str, Any]:
        """The values of `REPLY_FIELDS`, as a file or a server returns them."""
        values = (self.completion, self.answer.truncated, *self.answer.counts)
        return dict(zip(REPLY_FIELDS, values, strict=True))


# Sees the complete answers to chats, such as a log of them. It may block: servers call it in a
# thread of its own.
Observer = Callable[[Reply], object]


@dataclass(frozen=True)
class Deployment:
    """A loaded pair and its router, with the rule that applies by default.

    The engine keeps its caches, and on a GPU its graphs, from call to call.
    """

    engine: Engine
    router: Router
    rule: Rule
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    @property
    def pair(self) -> Pair:
        return self.engine.pair

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the router was trained on."""
        return self.pair.prompts.tasks

    def replies(
        self,
        problems: Sequence[Problem],
        advance: Advance = lambda _: None,
        sampler: Sampler = ALL_GREEDY,
    ) -> Iterator[Reply]:
        """Yield the replies in the order of the problems; `advance` counts them as they finish.

        A sampled reply depends on the sampler and on the problem's id, but on no other problem.
        Each problem must pass `check`. A call from a second thread waits until this one has ended.
        """
        policy, prompts = self.policy(self.rule), self.pair.prompts
        requests = (
            Request(
                str(number),
                tuple(prompts.prompt_ids(problem)),
                sampling=sampler.sampling(problem.problem_id),
            )
            for number, problem in enumerate(problems)
        )
        finished: dict[int, Reply] = {}  # replies that wait for an earlier one
        with self._lock:
            due = 0
            for answer in self.engine.decode(requests, policy):
                number = int(answer.key)
                text = self.pair.text(answer.token_ids)
                finished[number] = Reply(problems[number], answer, text)
                advance(1)
                while due in finished:
                    yield finished.pop(due)
                    due += 1

    def check(self, problem: Problem) -> None:
        """Raise InputError without a prompt, or without room for it and the longest answer."""
        check_characters("question", problem.characters, self.pair.context)
        length = len(self.pair.prompts.prompt_ids(problem))
        longest = self.engine.limits.max_new_tokens
        check_fits("question", length, self.pair.context, longest)

    def policy(self, rule: Rule) -> Policy:
        """Return the router with a rule, `certain` if the router is none that was trained.

        Raises InputError if it has no head for that rule.
        """
        return routed(self.router, certain(rule) if NO_HEAD in self.router.heads else rule)


def deploy(
    bundle: Path,
    folders: PairFolder,
    params: PairParams,
    rule: Rule,
    limits: DecodeParams,
    loaded: LanguageModel | Carded | None = None,
) -> Deployment:
    """Load a router and its pair (see `served_pair`); `rule` routes between the models.

    An LLM that is `loaded` already is used again if the pair has the same one. Raises InputError,
    before any weight is loaded, if the router was made for another pair or lacks the rule's head.
    """
    router, card = read_bundle(bundle)
    check_identity(card, folders.identity(params.dtype), bundle)
    routed(router, rule)
    place = read_card(bundle).serve
    if place.engine != "citer":
        warn(f"{bundle}: its rule was chosen for {place.engine}, and may not be the cheapest here")
    pair = load_pair(folders, params, loaded)
    engine = Engine(pair, limits.slots, limits.max_new_tokens, place.delayed)
    return Deployment(engine, router.to(pair.slm.device), rule)


def served_pair(
    bundle: Path, params: PairParams, slm: Path = paths.SLM, patience: Sequence[float] = PATIENCE
) -> PairFolder:
    """Pair the LLM with the finetuned SLM in the bundle, or with `slm` if the bundle has none.

    The LLM runs here, or on the vLLM server at `pair.llm_url` (see `Server`). Raises InputError.
    """
    own, prompts = bundle / "slm", read_card(bundle).prompts
    folder = ModelFolder(own if own.is_dir() else slm, prompts, params.slm_weights)
    llm = llm_folder(Path(params.llm), params.llm_url, prompts, patience)
    return PairFolder(folder, llm)


def stored_rule(bundle: Path) -> Rule:
    """Return the rule that registration stored with a router. Raises InputError without one."""
    deployed = read_card(bundle).threshold
    if not deployed:
        raise InputError(f"{bundle}: no rule in router.json: give --rule, or a registered router")
    return deployed.rule
