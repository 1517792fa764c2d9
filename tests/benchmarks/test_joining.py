"""An engine in which all sequences join each forward of the LLM."""

from benchmarks.joining import Joining
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy
from citer.evaluation.rivals import low_entropy
from citer.models.pair import Pair
from citer.rule import Rule

EXACT = Policy(low_entropy, Rule("risk", 0.01, 1))
REQUESTS = [Request(f"{n}", tuple(range(1, 4 + n))) for n in range(6)]


def answered(kind: type[Engine], pair: Pair, policy: Policy) -> dict[str, Answer]:
    engine = kind(pair, slots=3, max_new_tokens=24, delayed=True)
    return {answer.key: answer for answer in engine.decode(REQUESTS, policy)}


def test_sequences_join_visits_and_exact_answers_stay_the_llms(kin: Pair) -> None:
    alone = answered(Engine, kin, LLM_ALONE)
    delayed, joined = (answered(kind, kin, EXACT) for kind in (Engine, Joining))
    for key, answer in alone.items():
        assert delayed[key].token_ids == joined[key].token_ids == answer.token_ids
    visits = [sum(len(each.visits) for each in one.values()) for one in (delayed, joined)]
    assert visits[1] > visits[0]
