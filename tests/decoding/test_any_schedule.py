"""The engine's answers equal those of plain decoding, for any requests, order and batch.

Some requests are greedy and others sampled, each in its own way.
"""

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
from tests.decoding.reference import Uncached, by_llm, rounded, scheduled, uncached
from tests.graphs import uncaptured
from tests.noise import SAMPLINGS

BETAS = st.sampled_from([0.0, 0.3, 0.9, 1.0])
VISITS = st.one_of(
    st.tuples(st.just("score"), st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])),
    st.tuples(st.just("risk"), st.sampled_from([0.05, 0.2, 0.7, 1.0])),
    st.tuples(st.just("every"), st.sampled_from([1, 2, 3, 8])),
)
DRAFTERS = st.sampled_from(["slm", "slm", "lookup", "both"])
CAPS = st.sampled_from([0, 0, 1, 3])
RULES = st.builds(
    lambda visit, audit, draft, cap: Rule(*visit, audit, "", draft if audit else "slm", cap),
    VISITS,
    BETAS,
    DRAFTERS,
    CAPS,
)
SCORERS = st.sampled_from([scheduled(salt, levels=10) for salt in range(5)])  # some equal τ
POLICIES = st.builds(Policy, SCORERS, RULES)
TOKENS, FEW = st.integers(0, 256), st.integers(40, 41)  # few: the prompt repeats itself


@dataclass(frozen=True)
class Case:
    """Waves of requests to one engine, with the settings of the engine and of the pair."""

    waves: list[list[Request]]
    policies: list[Policy]
    eos_every: int
    max_new_tokens: int
    slots: int
    delayed: bool
    kin: bool
    filled_up: bool  # forwards at fixed shapes, as on a GPU


def family(prompt: list[int], reference: list[int], cuts: list[int], share: bool) -> list[Request]:
    """Make requests that begin with parts of one reference. An odd cut adds another token."""
    trunk = (*prompt, *reference) if share else None
    return [
        Request("", tuple(prompt), (*reference[: cut // 2], *([cut] * (cut % 2))), trunk)
        for cut in cuts
    ]


FAMILIES = st.builds(
    family,
    prompt=st.lists(TOKENS, min_size=1, max_size=12) | st.lists(FEW, min_size=1, max_size=20),
    reference=st.lists(TOKENS, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True),
    share=st.booleans(),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    members = chain.from_iterable(draw(st.lists(FAMILIES, min_size=1, max_size=4)))
    requests = draw(
        st.permutations([replace(member, key=f"q{n}") for n, member in enumerate(members)])
    )
    greedy = draw(st.booleans())
    noise = st.none() if greedy else st.sampled_from([None, *SAMPLINGS])
    requests = [replace(request, sampling=draw(noise)) for request in requests]
    cut = draw(st.integers(0, len(requests)))
    return Case(
        waves=[requests[:cut], requests[cut:]],
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
    """Yield an engine's answers to the waves of a case, one wave after the other."""
    make_graphs = uncaptured if case.filled_up else no_graphs
    engine = Engine(pair, case.slots, case.max_new_tokens, case.delayed, make_graphs)
    for wave in case.waves:
        requests = {request.key: request for request in wave}
        results = list(engine.sweep(wave, list(policies)))
        assert len(results) == len(wave) * len(policies)
        assert {(a.key, a.policy) for a in results} == set(product(requests, policies))
        yield from ((requests[answer.key], answer) for answer in results)


def pair_of(pair: Pair, kin: Pair, case: Case) -> Pair:
    """Return the pair of a case, similar models or different ones, with many EOS tokens."""
    pair = kin if case.kin else pair
    return replace(pair, eos_ids=tuple(range(1, pair.vocabulary.size, case.eos_every)))


@settings(max_examples=60)
@given(case=cases())
def test_any_schedule_in_any_batch_is_plain_decoding(pair: Pair, kin: Pair, case: Case) -> None:
    check_plain(case, pair_of(pair, kin, case), case.policies)


def check_plain(case: Case, pair: Pair, policies: Collection[Policy]) -> None:
    """Compare tokens, visits, disagreements and the work of both models with the definition."""
    for request, answer in answers(case, pair, policies):
        plain = Uncached(pair, request, answer.policy, case.max_new_tokens).run()
        assert list(answer.token_ids) == plain.written
        assert list(by_llm(answer)) == plain.by_llm
        assert answer.truncated == (plain.written[-1] not in pair.eos_ids)
        assert rounded(answer.visits) == rounded(plain.visits)
        trace = Trace.of(plain.begin, len(answer.token_ids), answer.visits)
        assert (trace.slm, trace.llm) == (plain.slm.work, plain.llm.work)


@settings(max_examples=25)
@given(case=cases())
def test_audits_for_every_disagreement_give_the_llms_own_tokens(
    pair: Pair, kin: Pair, case: Case
) -> None:
    pair = pair_of(pair, kin, case)
    exact = {replace(p, rule=replace(p.rule, audit=1)) for p in case.policies}
    for request, answer in answers(case, pair, exact):
        tokens, _ = uncached(pair, request, LLM_ALONE, case.max_new_tokens)
        assert list(answer.token_ids) == tokens
