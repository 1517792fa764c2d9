"""router0 and train@k: bundles that their own pair accepts and that name their inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.data.prompts import Encoded
from citer.data.splits import holdout_rows
from citer.data.tokens import read_features, read_tokens
from citer.errors import InputError
from citer.evaluation.methods import SCORERS, TARGETS
from citer.models.bundle import check_identity, read_bundle
from citer.models.folder import ModelFolder, PairFolder
from citer.models.pair import load_pair
from citer.models.router import Head, Router
from citer.stages import label, paths, router0, train
from citer.storage.schema import HOLDOUT, PREFERENCE
from citer.storage.tables import (
    digest,
    read_json,
    read_table,
    table_metadata,
    write_json,
    write_table,
)
from citer.training.router import NARROW, train_head
from tests.stages.conftest import files


@pytest.fixture
def labelled(scored: Params) -> Params:
    label.run(scored, 1)
    return scored


def _references() -> dict[str, Encoded]:
    problems = read_problems(paths.referenced("preference"))
    return ModelFolder(paths.SLM).prompts.encode_all(problems)


def test_the_bundle_belongs_to_its_pair_and_names_its_data(labelled: Params) -> None:
    train.run(labelled, 1)
    router, card = read_bundle(paths.router(1))
    pair = load_pair(PairFolder(paths.SLM, Path(labelled.pair.llm)), labelled.pair)
    check_identity(card, pair.identity, paths.router(1))
    widths = {name: head.mlp and head.mlp.hidden_size for name, head in router.heads.items()}
    narrow = dict.fromkeys(("narrow", *TARGETS), 8)
    numbers = dict.fromkeys(("logistic", *(f"{name}_logistic" for name in TARGETS)), 0)
    assert widths == narrow | numbers | {"stand": pair.slm.hidden_size}
    assert widths.keys() == SCORERS.keys()
    assert card["iteration"] == 1
    assert card["data"] == {
        "preferences": digest(paths.preferences(1)),
        "slm_tokens": digest(paths.SLM_TOKENS),
    }


def test_the_holdout_has_the_scores_of_the_held_out_labels(labelled: Params) -> None:
    train.run(labelled, 1)
    router, _ = read_bundle(paths.router(1))
    labels = read_table(paths.preferences(1), PREFERENCE)
    feature_NF = torch.from_numpy(read_features(paths.SLM_TOKENS, labels)).float()
    problem_N = labels["problem_id"].to_numpy()
    held_N = holdout_rows(problem_N, labelled.seed, labelled.train.holdout)
    with torch.inference_mode():
        score_M = router.heads["stand"].score(feature_NF[held_N]).double().numpy()
    assert read_json(paths.router(1) / "metrics.json")["holdout_rows"] == len(score_M)
    table = read_table(paths.router(1) / paths.HOLDOUT, HOLDOUT)
    assert table.drop_columns("score") == labels.filter(held_N).select(HOLDOUT.names[:-1])
    assert table["score"].to_numpy().tolist() == score_M.tolist()


def test_router_0_is_constant_and_does_not_depend_on_the_seed(scored: Params) -> None:
    router, card = read_bundle(paths.router(0))
    folders = PairFolder(paths.SLM, Path(scored.pair.llm))
    check_identity(card, folders.identity(scored.pair.dtype), paths.router(0))
    assert router == Router({"stand": Head(None), "agree": Head(None)})
    first = files(paths.router(0))
    # Labels depend on router 0, so it must not change.
    router0.run(scored.model_copy(update={"seed": 5}))
    assert files(paths.router(0)) == first


def test_the_agree_head_learns_where_both_models_choose_the_same_token(scored: Params) -> None:
    router, card = read_bundle(paths.COMMON)
    assert card["data"] == {
        "slm_tokens": digest(paths.SLM_TOKENS),
        "llm_tokens": digest(paths.LLM_TOKENS),
    }
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, _references())
    feature_NF = read_features(paths.SLM_TOKENS, tokens)
    both = (tokens[f"{name}_token"].to_pylist() for name in ("slm", "llm"))
    agrees_N = [slm == llm for slm, llm in zip(*both, strict=True)]
    assert 0 < sum(agrees_N) < len(agrees_N)
    problem_N = tokens["problem_id"].to_numpy()
    settings = scored.train, scored.seed, torch.device("cpu")
    trained = train_head(feature_NF, np.array(agrees_N), problem_N, *settings, NARROW)
    with torch.inference_mode():
        feature_NF = torch.from_numpy(feature_NF).float()
        assert torch.equal(router.heads["agree"].score(feature_NF), trained.head.score(feature_NF))
    assert read_json(paths.COMMON / "metrics.json") == trained.metrics
    assert read_json(paths.COMMON / paths.CURVE) == trained.curve._asdict()


def test_train_copies_the_heads_without_preferences_bit_for_bit(labelled: Params) -> None:
    train.run(labelled, 1)
    folders = paths.COMMON, paths.router(1)
    first, later = (load_file(folder / "router.safetensors") for folder in folders)
    assert first, "there is no weight to copy"
    assert all(torch.equal(later[key], tensor) for key, tensor in first.items())
    cards = [read_json(folder / "router.json") for folder in folders]
    heads, all_heads = (card["heads"] for card in cards)
    assert {name: all_heads[name] for name in heads} == heads
    assert all_heads.keys() - heads.keys() == {"stand", "narrow", "logistic"}


def test_two_runs_of_router_0_give_the_same_bytes(scored: Params) -> None:
    first = files(paths.COMMON)
    assert first.keys() == {"router.json", "router.safetensors", "metrics.json", "curve.json"}
    router0.run(scored)
    assert files(paths.COMMON) == first


def test_an_agree_head_of_another_pair_is_refused(labelled: Params) -> None:
    path = paths.COMMON / "router.json"
    write_json(path, read_json(path) | {"llm": {"id": "other", "digest": "0"}})
    with pytest.raises(InputError, match=r"routers/common: made for the LLM other \(0\)"):
        train.run(labelled, 1)


def test_two_runs_give_the_same_bytes(labelled: Params) -> None:
    train.run(labelled, 1)
    first = files(paths.router(1))
    assert first.keys() == {path.name for path in paths.COMMON.iterdir()} | {"holdout.parquet"}
    train.run(labelled, 1)
    assert files(paths.router(1)) == first


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
