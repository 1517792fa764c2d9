"""Whatever is asked, in whatever order and batch, the engine writes what plain decoding writes."""

from dataclasses import dataclass, replace
from itertools import chain, product

from hypothesis import given, settings
from hypothesis import strategies as st

from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.decoding.walk import Request
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import scheduled, uncached

BETAS = st.sampled_from([0.0, 0.3, 0.9, 1.0])
RULES = st.one_of(
    st.builds(Rule, st.just("score"), st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), BETAS),
    st.builds(Rule, st.just("risk"), st.sampled_from([0.05, 0.2, 0.7, 1.0]), BETAS),
    st.builds(Rule, st.just("every"), st.sampled_from([1, 2, 3, 8]), BETAS),
)
TOKENS = st.integers(0, 256)


@dataclass(frozen=True)
class Case:
    """Waves of requests to one engine, and what an answer may and may not depend on."""

    waves: list[list[Request]]
    rules: list[Rule]
    salt: int
    eos_every: int
    max_new_tokens: int
    slots: int
    llm_batch: int


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
        rules=draw(st.lists(RULES, min_size=1, max_size=4, unique=True)),
        salt=draw(st.integers(0, 1000)),
        eos_every=draw(st.integers(2, 20)),
        max_new_tokens=draw(st.integers(1, 8)),
        slots=draw(st.integers(1, 6)),
        llm_batch=draw(st.integers(1, 7)),
    )


@settings(max_examples=60)
@given(case=cases())
def test_any_schedule_in_any_batch_is_plain_decoding(pair: Pair, case: Case) -> None:
    scorer = scheduled(case.salt, levels=10)  # so that scores meet thresholds
    pair = replace(pair, eos_ids=tuple(range(1, pair.vocab_size, case.eos_every)))
    engine = Engine(pair, case.slots, case.max_new_tokens, case.llm_batch)
    for wave in case.waves:
        asked = {request.key: request for request in wave}
        answers = list(engine.sweep(wave, scorer, case.rules))
        assert sorted((answer.key, answer.rule) for answer in answers) == sorted(
            product(asked, case.rules)
        )
        for answer in answers:
            policy = Policy(scorer, answer.rule)
            tokens, by_llm = uncached(pair, asked[answer.key], policy, case.max_new_tokens)
            assert (list(answer.token_ids), list(answer.by_llm)) == (tokens, by_llm)
            assert answer.truncated == (tokens[-1] not in pair.eos_ids)
