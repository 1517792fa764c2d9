"""train@k: a bundle that its own pair accepts, and that says what it was made from."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from citer.config import Params
from citer.data.tokens import read_hidden
from citer.errors import InputError
from citer.io import digest, read_json, read_table, table_metadata, write_table
from citer.models.bundle import check_card, read_bundle
from citer.models.pair import load_pair
from citer.schema import PREFERENCE, slm_token
from citer.stages import label, paths, train
from citer.training import holdout_rows
from tests.stages.conftest import run_killed


@pytest.fixture
def labelled(scored: Params) -> Params:
    label.run(scored, 1)
    return scored


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_bundle_is_its_pair_s_and_names_its_data(labelled: Params) -> None:
    train.run(labelled, 1)
    router, card = read_bundle(paths.router(1))
    pair = load_pair(paths.SLM, Path(labelled.pair.llm), labelled.pair)
    check_card(card, pair, paths.router(1))
    assert router.mlp
    assert router.mlp.hidden_size == pair.slm.hidden_size
    assert card["iteration"] == 1
    assert card["data"] == {
        "preferences": digest(paths.preferences(1)),
        "slm_tokens": digest(paths.SLM_TOKENS),
    }


def test_the_bundle_s_thresholds_cut_the_holdout_s_scores(labelled: Params) -> None:
    train.run(labelled, 1)
    router, card = read_bundle(paths.router(1))
    labels = read_table(paths.preferences(1), PREFERENCE)
    hidden_NH = torch.from_numpy(read_hidden(paths.SLM_TOKENS, labels)).float()
    section = labelled.train
    held_N = holdout_rows(labels["problem_id"].to_numpy(), section.seed, section.holdout)
    with torch.inference_mode():
        score_M = router.score(hidden_NH[held_N]).double().numpy()
    for fraction in ("0", "0.1", "0.25", "0.5", "1"):
        below = (score_M < card["holdout_scores"][fraction]).mean()
        assert below == pytest.approx(float(fraction), abs=1 / len(score_M))
    assert read_json(paths.router(1) / "metrics.json")["holdout_rows"] == len(score_M)


def test_each_label_meets_its_own_hidden_state(labelled: Params) -> None:
    labels = read_table(paths.preferences(1), PREFERENCE)
    labels = labels.filter(np.arange(len(labels)) % 3 > 0)  # as if ties were dropped
    schema = slm_token(32)
    stored = {
        (row["problem_id"], row["position"]): row["slm_hidden"]
        for path in paths.SLM_TOKENS.iterdir()
        for row in read_table(path, schema).to_pylist()
    }
    keys = zip(labels["problem_id"].to_pylist(), labels["position"].to_pylist(), strict=True)
    expected = np.frombuffer(b"".join(stored[key] for key in keys), np.float16).reshape(-1, 32)
    assert np.array_equal(read_hidden(paths.SLM_TOKENS, labels), expected)


def test_two_runs_give_the_same_bytes(labelled: Params) -> None:
    train.run(labelled, 1)
    first = _files(paths.router(1))
    assert first.keys() == {"router.json", "router.safetensors", "metrics.json"}
    train.run(labelled, 1)
    assert _files(paths.router(1)) == first


def test_labels_of_another_pair_are_refused(labelled: Params) -> None:
    path = paths.preferences(1)
    metadata = table_metadata(path) | {"llm": {"id": "other", "digest": "0"}}
    write_table(path, read_table(path, PREFERENCE), PREFERENCE, metadata)
    with pytest.raises(InputError, match=r"preferences.parquet: made for the LLM other \(0\)"):
        train.run(labelled, 1)


def test_labels_without_hidden_states_are_refused(labelled: Params) -> None:
    sorted(paths.SLM_TOKENS.iterdir())[0].unlink()
    with pytest.raises(
        InputError, match=r"data/tokens/slm: states of \d+ labelled tokens, expected"
    ):
        train.run(labelled, 1)


@pytest.mark.slow
def test_a_killed_stage_starts_again_and_ends_in_the_same_bytes(labelled: Params) -> None:
    train.run(labelled, 1)
    whole = _files(paths.router(1))
    shutil.rmtree(paths.router(1))
    run_killed(labelled, "train", 1, module="citer.training", function="_train_epoch")
    assert not paths.router(1).exists()
    train.run(labelled, 1)
    assert _files(paths.router(1)) == whole
