"""The head `judge`, from `label.judge` to answers by a rule that needs it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.decoding.acceptance import JudgedBy
from citer.decoding.engine import Engine
from citer.decoding.policy import routed
from citer.errors import InputError
from citer.evaluation.sweep import audit_weights, request
from citer.labelling.judged import differing, read_judged
from citer.models.bundle import read_bundle
from citer.models.features import features, judge_features
from citer.models.folder import ModelFolder, PairFolder
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.stages import label, paths, train
from citer.storage.schema import PREFERENCE
from citer.storage.tables import digest, read_json, read_table
from tests.decoding.reference import next_hidden

RULE = Rule.parse("every 3 judge 0.5")


@pytest.fixture
def judged(scored: Params) -> Params:
    section = scored.label.model_copy(update={"judge": True})
    params = scored.model_copy(update={"label": section})
    label.run(params, 1)
    return params


def loaded(params: Params) -> Pair:
    return load_pair(PairFolder(paths.SLM, Path(params.pair.llm)), params.pair)


def test_rows_are_the_labels_where_the_models_differ_with_features_of_both(
    judged: Params,
) -> None:
    pair, (rows, feature_NF, hidden_size) = loaded(judged), read_judged(paths.judged(1))
    labels = read_table(paths.preferences(1), PREFERENCE).to_pylist()
    by_place = {(each["problem_id"], each["position"]): each["label"] for each in labels}
    problems = {p.problem_id: p for p in read_problems(paths.referenced("preference"))}
    examples = ModelFolder(paths.SLM).prompts.encode_all(problems.values())
    expected = {}
    for (key, position), kept in by_place.items():
        prompt_ids, reference_ids = examples[key]
        ids = [*prompt_ids, *reference_ids[:position]]
        with torch.inference_mode():
            models = pair.slm, pair.local_llm
            hidden = [next_hidden(model, ids) for model in models]
            logprobs = [
                pair.vocabulary.choices(model.logits(state)).log_softmax(-1)
                for model, state in zip(models, hidden, strict=True)
            ]
            slm, llm = (logprob_NV.argmax(-1) for logprob_NV in logprobs)
            if slm != llm:
                slm_NF = features(hidden[0], logprobs[0])
                expected[key, position] = (
                    kept,
                    judge_features(slm_NF, hidden[1], logprobs[1], slm)[0],
                )
    assert 0 < len(expected) < len(by_place)
    assert hidden_size == pair.slm.hidden_size // 4
    places = zip(rows["problem_id"].to_pylist(), rows["position"].to_pylist(), strict=True)
    for place, kept, feature_F in zip(places, rows["label"].to_pylist(), feature_NF, strict=True):
        label_here, expected_F = expected.pop(place)
        assert label_here == kept
        np.testing.assert_allclose(feature_F, expected_F.numpy(), rtol=0.02, atol=0.02)
    assert not expected


def test_a_router_learns_the_head_and_answers_by_it(judged: Params) -> None:
    train.run(judged, 1)
    router, card = read_bundle(paths.router(1))
    assert set(card["heads"]) == {"agree", "stand", "judge"}
    assert card["data"]["judged"] == digest(paths.judged(1))
    assert read_json(paths.router(1) / "metrics.json")["judge_rows"] > 0
    pair, policy = loaded(judged), routed(router, RULE)
    assert policy.criterion == JudgedBy(router.heads["judge"])
    assert audit_weights(pair, policy) == router.heads["judge"].weight_bytes > 0
    assert audit_weights(pair, routed(router, Rule.parse("every 3 kl 1"))) == pair.slm.output_bytes
    for free in ("audit 0.5", "top 3"):
        assert audit_weights(pair, routed(router, Rule.parse(f"every 3 {free}"))) == 0
    problems = read_problems(paths.referenced("preference"))
    engine = Engine(pair, 4, 20)
    answers = list(engine.decode([request(problem, pair) for problem in problems], policy))
    rejected = sum(visit.rejects for answer in answers for visit in answer.visits)
    disagreed = sum(len(visit.disagreements) for answer in answers for visit in answer.visits)
    assert 0 < rejected <= disagreed


def test_without_the_setting_there_is_no_head(scored: Params) -> None:
    label.run(scored, 1)
    train.run(scored, 1)
    assert not paths.judged(1).exists()
    router, _ = read_bundle(paths.router(1))
    with pytest.raises(InputError, match="the router has no head `judge`"):
        routed(router, RULE)


def test_a_relabelling_without_the_setting_drops_the_rows(judged: Params) -> None:
    assert paths.judged(1).exists()
    section = judged.label.model_copy(update={"judge": False})
    label.run(judged.model_copy(update={"label": section}), 1)
    assert not paths.judged(1).exists()


def test_a_judge_needs_differences_in_two_questions(
    judged: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels of the refused run are kept for one without the judge."""
    before = digest(paths.preferences(1).parent)

    def of_one_question(tokens: pa.Table, labels: pa.Table) -> pa.Table:
        rows = differing(tokens, labels)
        return rows.filter(pc.equal(rows["problem_id"], rows["problem_id"][0]))

    monkeypatch.setattr("citer.labelling.judged.differing", of_one_question)
    with pytest.raises(InputError, match=r"label\.judge: .* in 1 labelled questions, expected 2"):
        label.run(judged, 1)
    assert digest(paths.preferences(1).parent) == before, "nothing is half-written"

    missing: list[Path] = []
    monkeypatch.setattr("citer.labelling.chunks.write_tables", lambda *a: missing.extend(a[2]))
    section = judged.label.model_copy(update={"judge": False})
    label.run(judged.model_copy(update={"label": section}), 1)
    assert not missing, "a chunk was labelled again"
