"""The oracle against the engine, with a scorer that knows the LLM's answer."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from citer.config.params import PairParams, SamplingParams
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, StepView
from citer.evaluation.bounds import AGREES, oracle_bound
from citer.evaluation.cost import Trace
from citer.evaluation.points import Findings
from citer.evaluation.study import Study
from citer.evaluation.sweep import request
from citer.executors.base import InLine, Job, Unit
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.models.sampling import stable_hash
from citer.progress import Advance
from tests.studied import DECODE, changed


@dataclass(frozen=True, eq=False)
class Knowing:
    """Scores 1 where the SLM's choice is the LLM's token, by request and position."""

    answers: dict[int, tuple[int, ...]]

    def __call__(self, view: StepView) -> Tensor:
        places = zip(view.seed_N.tolist(), view.position_N.tolist(), strict=True)
        own = [self.answers[seed][n] if n < len(self.answers[seed]) else -1 for seed, n in places]
        return (view.logits_NV.argmax(-1) == torch.tensor(own)).float()


@pytest.mark.parametrize("sampling", [None, SamplingParams(temperature=0.8)])
def test_the_oracle_is_the_engine_with_a_scorer_that_knows_the_llms_answer(
    study: Study, sampling: SamplingParams | None, tmp_path
) -> None:
    own = replace(changed(study, sampling=sampling), partial=tmp_path)
    [run] = oracle_bound(own, own.alone_on(own.test))
    engine = Engine(study.pair, 3, DECODE.max_new_tokens)
    requests = [request(problem, study.pair, own.sampler) for problem in own.test]
    llm = {answer.key: answer for answer in engine.decode(requests, LLM_ALONE)}
    known = Knowing({stable_hash(key): answer.token_ids for key, answer in llm.items()})
    answers = {answer.key: answer for answer in engine.decode(requests, Policy(known, AGREES))}
    for asked, result in zip(requests, run.results, strict=True):
        answer = answers[asked.key]
        assert answer.token_ids == llm[asked.key].token_ids == result.token_ids
        assert answer.counts == result.counts
        traced = Trace.of(len(asked.prompt_ids), len(answer.token_ids), answer.visits)
        assert result.trace == traced
    assert sum(result.counts.visits for result in run.results) > 0


class Elsewhere(InLine):
    """Runs a job as another process would, which loads the weights."""

    remote = True

    def run(self, job: Job, units: Sequence[Unit], advance: Advance) -> Iterator:
        return super().run(pickle.loads(pickle.dumps(job)), units, advance)


def test_the_oracle_needs_no_weights_in_this_process(study: Study, tmp_path) -> None:
    own = replace(study, partial=tmp_path)
    slm, llm = (model.path for model in (study.pair.slm, study.pair.llm))
    params = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float64")
    away = replace(
        own, executor=Elsewhere(), pair=load_pair(PairFolder(slm, llm), params, weights=False)
    )
    alone = own.alone_on(own.test)
    [[one], [other]] = (oracle_bound(each, alone) for each in (own, away))
    assert [result.trace for result in other.results] == [result.trace for result in one.results]


def test_no_rule_that_gives_the_llms_answers_visits_it_less_often(
    fixed: Findings, studied: tuple[Findings, object]
) -> None:
    rows = [*fixed.outcomes.to_pylist(), *studied[0].outcomes.to_pylist()]
    tested = [row for row in rows if row["split"] == "test"]
    least = {row["problem_id"]: row for row in tested if row["method"] == "oracle"}
    exact = [row for row in tested if row["audit"] == 1 or row["method"] == "llm"]
    assert {row["method"] for row in exact} >= {"llm", "speculative", "exact"}
    for row in exact:
        bound = least[row["problem_id"]]
        assert bound["visits"] <= row["visits"]
        assert (bound["correct"], bound["tokens"]) == (row["correct"], row["tokens"])
