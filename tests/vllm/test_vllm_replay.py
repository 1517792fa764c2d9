"""The price of lockstep drafting is that of the plugin's own loop."""

import pytest
import torch

from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import routed
from citer.evaluation import lockstep
from citer.evaluation.cost import Trace
from citer.models.pair import Pair
from citer.rule import Rule
from citer.vllm.drafting import Drafter
from tests.heads import random_router
from tests.vllm.lockstep import Lockstep

LIMIT = 24
ROWS = 4
PROMPTS = {f"q{n}": tuple(range(20 + 3 * n, 26 + 5 * n)) for n in range(12)}
EXACT = Rule.parse("score 0.5 audit 1")


@torch.inference_mode()
@pytest.mark.parametrize("cap", [1, 5, LIMIT])
def test_a_replay_counts_the_forwards_of_the_plugin(kin: Pair, cap: int) -> None:
    router = random_router(kin.slm.hidden_size, dtype=torch.float64)
    drafter = Drafter(kin, router, ROWS, 128)
    loop = Lockstep(kin, drafter, rows=ROWS, cap=cap)
    loop.run(PROMPTS, dict.fromkeys(PROMPTS, EXACT), LIMIT)
    requests = [Request(key, ids) for key, ids in PROMPTS.items()]
    engine = Engine(kin, slots=ROWS, max_new_tokens=LIMIT)
    own = {answer.key: answer for answer in engine.decode(requests, routed(router, EXACT))}
    traces = [
        Trace.of(len(ids), len(own[key].token_ids), own[key].visits) for key, ids in PROMPTS.items()
    ]
    slm, llm = lockstep.Lockstep(cap).work(traces, ROWS)
    assert llm.forwards == loop.forwards
    # A prompt may have a forward of its own, if other rows draft already.
    assert 0 <= drafter.runner.total.forwards - slm.forwards < len(PROMPTS)
