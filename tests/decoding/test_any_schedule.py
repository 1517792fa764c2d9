"""Whatever is asked, in whatever order and batch, the engine writes what plain decoding writes."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain, product

from hypothesis import given, settings
from hypothesis import strategies as st

from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy
from citer.evaluation.cost import Trace
from citer.models.graphs import no_graphs
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import Uncached, rounded, scheduled, uncached
from tests.graphs import uncaptured

BETAS = st.sampled_from([0.0, 0.3, 0.9, 1.0])
RULES = st.one_of(
    st.builds(Rule, st.just("score"), st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), BETAS),
    st.builds(Rule, st.just("risk"), st.sampled_from([0.05, 0.2, 0.7, 1.0]), BETAS),
    st.builds(Rule, st.just("every"), st.sampled_from([1, 2, 3, 8]), BETAS),
)
SCORERS = st.sampled_from([scheduled(salt, levels=10) for salt in range(5)])  # meet thresholds
POLICIES = st.builds(Policy, SCORERS, RULES)
TOKENS = st.integers(0, 256)


@dataclass(frozen=True)
class Case:
    """Waves of requests to one engine, and what an answer may and may not depend on."""

    waves: list[list[Request]]
    policies: list[Policy]
    eos_every: int
    max_new_tokens: int
    slots: int
    delayed: bool
    kin: bool
    filled_up: bool  # forwards at fixed shapes, as on a GPU


def family(prompt: list[int], reference: list[int], cuts: list[int], share: bool) -> list[Request]:
    """Answers begun with a part of one reference, at odd cuts with a token of their own besides."""
    trunk = (*prompt, *reference) if share else None
    return [
        Request("", tuple(prompt), (*reference[: cut // 2], *([cut] * (cut % 2))), trunk)
        for cut in cuts
    ]


FAMILIES = st.builds(
    family,
    prompt=st.lists(TOKENS, min_size=1, max_size=12),
    reference=st.lists(TOKENS, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True),
    share=st.booleans(),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    members = chain.from_iterable(draw(st.lists(FAMILIES, min_size=1, max_size=4)))
    asked = draw(
        st.permutations([replace(member, key=f"q{n}") for n, member in enumerate(members)])
    )
    cut = draw(st.integers(0, len(asked)))
    return Case(
        waves=[asked[:cut], asked[cut:]],
        policies=draw(st.lists(POLICIES, min_size=1, max_size=5, unique=True)),
        eos_every=draw(st.integers(2, 20)),
        max_new_tokens=draw(st.integers(1, 8)),
        slots=draw(st.integers(1, 6)),
        delayed=draw(st.booleans()),
        kin=draw(st.booleans()),
        filled_up=draw(st.booleans()),
    )


def answers(
    case: Case, pair: Pair, policies: Collection[Policy]
) -> Iterator[tuple[Request, Answer]]:
    """What an engine answers to the case's waves, one after the other."""
    make_graphs = uncaptured if case.filled_up else no_graphs
    engine = Engine(pair, case.slots, case.max_new_tokens, case.delayed, make_graphs)
    for wave in case.waves:
        asked = {request.key: request for request in wave}
        found = list(engine.sweep(wave, list(policies)))
        assert len(found) == len(wave) * len(policies)
        assert {(a.key, a.policy) for a in found} == set(product(asked, policies))
        yield from ((asked[answer.key], answer) for answer in found)


def asked_pair(pair: Pair, kin: Pair, case: Case) -> Pair:
    """One that agrees or one that does not, with many tokens that end an answer."""
    pair = kin if case.kin else pair
    return replace(pair, eos_ids=tuple(range(1, pair.vocabulary.size, case.eos_every)))


@settings(max_examples=60)
@given(case=cases())
def test_any_schedule_in_any_batch_is_plain_decoding(pair: Pair, kin: Pair, case: Case) -> None:
    """Tokens, visits, what audits found, and the work of either model, all by the definition."""
    pair = asked_pair(pair, kin, case)
    for request, answer in answers(case, pair, case.policies):
        plain = Uncached(pair, request, answer.policy, case.max_new_tokens).run()
        assert list(answer.token_ids) == plain.written
        assert list(answer.by_llm) == plain.by_llm
        assert answer.truncated == (plain.written[-1] not in pair.eos_ids)
        assert rounded(answer.visits) == rounded(plain.visits)
        trace = Trace.of(plain.begin, len(answer.token_ids), answer.visits)
        assert (trace.slm, trace.llm) == (plain.slm.work, plain.llm.work)


@settings(max_examples=25)
@given(case=cases())
def test_audits_for_every_disagreement_give_the_llms_own_tokens(
    pair: Pair, kin: Pair, case: Case
) -> None:
    pair = asked_pair(pair, kin, case)
    exact = {replace(p, rule=replace(p.rule, audit=1.0)) for p in case.policies}
    for request, answer in answers(case, pair, exact):
        tokens, _ = uncached(pair, request, LLM_ALONE, case.max_new_tokens)
        assert list(answer.token_ids) == tokens
