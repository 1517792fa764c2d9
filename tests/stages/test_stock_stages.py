"""Whole stages with an LLM in the stock forward, and with an SLM whose weights are rounded."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from citer.config.params import Params
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.pair import load_pair
from citer.rule import Rule
from citer.serving.generate import generate
from citer.stages import label, paths
from citer.stages.folders import finetuned_pair
from citer.storage.schema import LLM_TOKEN, PREFERENCE
from citer.storage.tables import read_table
from tests.heads import random_router
from tests.quantised import METHODS
from tests.stages.conftest import label_all
from tests.stages.sections import with_section

QUESTION = json.dumps({"problem": "Ann has 3 bags of 4 apples. How many apples is that?"})


def test_a_split_llm_gives_the_same_scores_and_labels(project: Params) -> None:
    tables = []
    for params in (project, with_section(project, "pair", llm_device_map="auto")):
        shutil.rmtree(paths.LLM_TOKENS, ignore_errors=True)
        label_all(params)
        shards = sorted(paths.LLM_TOKENS.iterdir())
        tokens = pa.concat_tables(read_table(shard, LLM_TOKEN) for shard in shards)
        tables.append((tokens["llm_token"], read_table(paths.preferences(1), PREFERENCE)))
    assert tables[0] == tables[1]


@pytest.mark.parametrize("quantise", METHODS)
def test_a_quantised_llm_is_scored_and_answers(
    project: Params, quantise: Callable[[Path], None], tmp_path: Path
) -> None:
    quantise(Path(project.pair.llm))
    label_all(project)
    assert answered(project, "every 3 audit 1", tmp_path) == answered(project, "score 1", tmp_path)


def test_a_finetuned_slm_in_8_bits_is_scored_and_answers(project: Params, tmp_path: Path) -> None:
    rounded = with_section(project, "pair", slm_weights="int8")
    label_all(rounded)
    assert answered(rounded, "every 3 audit 1", tmp_path) == answered(rounded, "score 1", tmp_path)
    with pytest.raises(InputError, match=r"made for the SLM \S+ \(\w+-int8\), here it is"):
        label.run(project, 1)


def answered(params: Params, rule: str, folder: Path) -> str:
    """Return the completion of `citer generate` by an untrained router."""
    source, output, bundle = folder / "q.jsonl", folder / "a.jsonl", folder / "bundle"
    source.write_text(QUESTION)
    pair = load_pair(finetuned_pair(params), params.pair)
    write_bundle(bundle, random_router(pair.slm.hidden_size), pair.identity)
    generate(params, bundle, source, output, Rule.parse(rule))
    return json.loads(output.read_text())["completion"]
