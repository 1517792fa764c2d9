"""The seam to the LLM: a judge in another process, and one without a memory."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from citer.data.prompts import Encoded
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.judge import LocalJudge, ModelCard, Query, Scores, Text, Verdict
from citer.decoding.policy import LLM_ALONE, Policy
from citer.decoding.work import Work
from citer.evaluation.cost import Prices
from citer.labelling.teacher import half, llm_half, score
from citer.models.bundle import identity
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import next_logits, random_scorer
from tests.decoding.remote import remote
from tests.decoding.test_engine import MAX_NEW_TOKENS, requests
from tests.decoding.test_trie import branches

SLOTS = 4
ROOT = Path(__file__).parents[2]
POLICIES = [
    LLM_ALONE,
    *(
        Policy(random_scorer, Rule.parse(text))
        for text in ("score 0.4", "risk 0.5", "risk 0.6 audit 0.1", "every 4 audit 1")
    ),
]


@pytest.fixture
def far(kin: Pair) -> Iterator[Pair]:
    with remote(kin, LocalJudge(kin.llm, kin.vocabulary, SLOTS)) as pair:
        yield pair


def decoded(engine: Engine, asked: list[Request], policies: list[Policy]) -> list[Answer]:
    return list(engine.sweep(asked, policies))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy.rule))
def test_answers_of_a_judge_in_another_process_are_the_local_ones(
    kin: Pair, far: Pair, policy: Policy
) -> None:
    asked = requests(9)
    asked += branches(asked[0], tuple(range(40, 60)), [0, 3, 19])
    here, there = Engine(kin, SLOTS, MAX_NEW_TOKENS), Engine(far, SLOTS, MAX_NEW_TOKENS)
    assert decoded(there, asked, [policy]) == decoded(here, asked, [policy])
    assert there.llm_work == here.llm_work
    assert there.slm_work == here.slm_work


def test_so_are_those_of_many_policies_at_once(kin: Pair, far: Pair) -> None:
    here, there = (Engine(pair, SLOTS, MAX_NEW_TOKENS, delayed=True) for pair in (kin, far))
    assert decoded(there, requests(6), POLICIES) == decoded(here, requests(6), POLICIES)


def test_so_are_the_rows_of_teacher_forced_scoring(kin: Pair, far: Pair) -> None:
    examples = {r.key: Encoded(list(r.prompt_ids), [7, n, 9, 0]) for n, r in enumerate(requests(9))}
    here = score(half(kin.llm, kin.vocabulary), examples, 60, lambda _: None)

    def asked(texts: Sequence[Text]) -> dict[str, torch.Tensor]:
        return llm_half(far.llm, texts)

    assert score(asked, examples, 60, lambda _: None).equals(here)


def test_so_are_prices_and_identity(kin: Pair, far: Pair) -> None:
    assert Prices.of(far, 17) == Prices.of(kin, 17)
    assert identity(far) == identity(kin)
    assert far.vocabulary == kin.vocabulary


class Stateless:
    """Reads every query from its beginning, ignores all hints, and keeps nothing."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.work = Work()

    @property
    def card(self) -> ModelCard:
        return self.pair.llm.card

    def verdicts(self, queries: Sequence[Query]) -> list[list[Verdict]]:
        return [
            [self._verdict(list(query.ids[:place]), token) for place, token in judged(query)]
            for query in queries
        ]

    def _verdict(self, ids: list[int], token: int | None) -> Verdict:
        chance_V = next_logits(self.pair, self.pair.llm, ids).softmax(-1)
        choice = int(chance_V.argmax())
        return Verdict(choice, None if token is None else float(chance_V[token] / chance_V[choice]))

    def score(self, texts: Sequence[Text]) -> Scores:
        raise NotImplementedError


def judged(query: Query) -> list[tuple[int, int | None]]:
    return list(enumerate(query.standing, query.first))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy.rule))
def test_a_judge_may_ignore_all_hints(kin: Pair, policy: Policy) -> None:
    asked = branches(requests(1)[0], tuple(range(40, 60)), [0, 3, 19]) + requests(3)
    there = Engine(replace(kin, llm=Stateless(kin)), 2, MAX_NEW_TOKENS)
    here = Engine(kin, 2, MAX_NEW_TOKENS)
    found, expected = (decoded(engine, asked, [policy]) for engine in (there, here))
    assert [a.token_ids for a in found] == [a.token_ids for a in expected]
    assert [a.by_llm for a in found] == [a.by_llm for a in expected]


def sources() -> Iterator[tuple[str, list[ast.Attribute]]]:
    """Each file of the library with the attributes that it uses."""
    for file in sorted((ROOT / "citer").rglob("*.py")):
        nodes = ast.walk(ast.parse(file.read_text()))
        yield file.relative_to(ROOT).as_posix(), [n for n in nodes if isinstance(n, ast.Attribute)]


def test_a_network_is_used_by_the_models_and_by_the_lane_alone() -> None:
    users = {name for name, nodes in sources() if any(node.attr == "network" for node in nodes)}
    assert users == {"citer/models/pair.py", "citer/decoding/lane.py"}


def test_of_a_pairs_llm_only_the_card_is_used_but_by_the_engine() -> None:
    """The engine makes a judge of it. `params.pair.llm` is a path."""
    users = {(name, used) for name, nodes in sources() for used in uses_of_llm(nodes)}
    assert {name for name, used in users if used is None} == {"citer/decoding/engine.py"}
    assert {used for _, used in users} == {None, "card"}


def uses_of_llm(nodes: list[ast.Attribute]) -> Iterator[str | None]:
    """What is taken of a loaded pair's LLM; None where it is passed on itself."""
    taken = {id(node.value): node.attr for node in nodes}
    for node in nodes:
        owner = ast.unparse(node.value)
        if node.attr == "llm" and owner.split(".")[-1] == "pair" and "params" not in owner:
            yield taken.get(id(node))
