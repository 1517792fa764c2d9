"""Sampled answers, and a killed stage."""

from pathlib import Path

import pytest

from citer.config.params import Params, SamplingParams
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.evaluation.sweep import request
from citer.executors import tables as executor
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.stages import paths, references
from citer.storage.schema import SPLITS
from citer.storage.tables import PARTIAL, write_table
from tests.stages.asked import (
    LIMIT,
    given,
    made,
    no_answer,
    with_source,
    write_splits,
)
from tests.stages.conftest import run_killed


@pytest.mark.slow
def test_a_killed_stage_keeps_its_parts_and_ends_in_the_same_bytes(
    project: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_splits()
    params = with_source(project, "both", "llm")
    references.run(params)
    whole = {split: paths.referenced(split).read_bytes() for split in SPLITS}
    assert not list(PARTIAL.rglob("*.parquet"))
    for split in SPLITS:
        paths.referenced(split).unlink()
    run_killed(params, "references", module="citer.executors.tables", function="write_table")
    assert not paths.referenced("sft").exists()
    [kept] = PARTIAL.rglob("*.parquet")
    written: list[Path] = []
    monkeypatch.setattr(
        executor, "write_table", lambda *args: written.append(args[0]) or write_table(*args)
    )
    references.run(params)
    assert len(written) == 7
    assert kept not in written
    assert {split: paths.referenced(split).read_bytes() for split in SPLITS} == whole


HOT = SamplingParams(temperature=1.0, top_k=20)


def test_against_the_llm_the_reference_is_what_the_evaluation_samples(
    project: Params, taught_pair: Pair
) -> None:
    write_splits(no_answer)
    params = with_source(project, "auto", "llm")
    section = params.evaluate.model_copy(update={"sampling": HOT})
    references.run(params.model_copy(update={"evaluate": section}))
    engine, sampler = Engine(taught_pair, 1, LIMIT), Sampler(HOT, params.seed)
    expected = {}
    for problem in given("test"):
        (answer,) = engine.decode([request(problem, taught_pair, sampler)], LLM_ALONE)
        if not answer.truncated:
            expected[problem.problem_id] = taught_pair.text(answer.token_ids)
    assert {p.problem_id: p.reference for p in made("test")} == expected
    assert expected
