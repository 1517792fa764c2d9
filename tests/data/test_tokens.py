"""Hand-written shards of the two halves. Their order differs from that of the rows read."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from citer.data.prompts import Encoded
from citer.data.tokens import keep_fitting, read_features, read_identity, read_tokens, shard_name
from citer.errors import InputError
from citer.storage.schema import LLM_TOKEN, slm_token
from citer.storage.tables import read_table, write_table

EXAMPLES = {
    "b": Encoded([1, 2], [30, 31, 0]),
    "a": Encoded([1], [40, 0]),
    "c": Encoded([1, 3], [50, 51, 52, 0]),
}
SHARED = {"dtype": "float32", "tokenizer": "t", "template": "x", "vocab_size": 100}
LLM = SHARED | {"llm": {"id": "l", "digest": "2"}}
SLM = SHARED | {"slm": {"id": "s", "digest": "1"}, "feature": "f", "hidden_size": 2}


def _only(*keys: str) -> dict[str, Encoded]:
    return {key: EXAMPLES[key] for key in keys}


def _features(key: str, position: int) -> list[float]:
    """Hidden state, entropy, margin, log-probabilities; every value differs between rows."""
    value = position + ord(key) / 128
    return [float(ord(key)), float(position), value, 2 + value, *(-n - value for n in range(8))]


def _rows(examples: Mapping[str, Encoded], name: str) -> dict[str, list]:
    keys = [(key, n) for key, (_, reference) in examples.items() for n in range(len(reference))]
    return {
        "problem_id": [key for key, _ in keys],
        "position": [position for _, position in keys],
        "gt_token": [token for _, reference in examples.values() for token in reference],
        f"{name}_token": [ord(key) + position for key, position in keys],
        f"{name}_logprob_gt": [0.0] * len(keys),
        f"{name}_margin": [1.0] * len(keys),
    }


def _write_llm(folder: Path, *shards: Mapping[str, Encoded]) -> None:
    for shard in shards:
        table = pa.table(_rows(shard, "llm"), schema=LLM_TOKEN)
        write_table(folder / shard_name(shard), table, LLM_TOKEN, LLM)


def _write_slm(folder: Path, *shards: Mapping[str, Encoded]) -> None:
    for shard in shards:
        rows = _rows(shard, "slm")
        keys = list(zip(rows["problem_id"], rows["position"], strict=True))
        features = [_features(*key) for key in keys]
        rows["slm_entropy"], rows["slm_margin"] = ([row[n] for row in features] for n in (2, 3))
        rows["slm_top_logprobs"] = [row[4:] for row in features]
        rows["slm_hidden"] = [np.array(row[:2], np.float16).tobytes() for row in features]
        table = pa.table(rows, schema=slm_token(2))
        write_table(folder / shard_name(shard), table, slm_token(2), SLM)


@pytest.fixture
def halves(tmp_path: Path) -> tuple[Path, Path]:
    slm, llm = tmp_path / "slm", tmp_path / "llm"
    _write_slm(slm, _only("c", "a"), _only("b"))
    _write_llm(llm, _only("a", "b", "c"))
    return slm, llm


def test_rows_are_joined_in_the_order_of_the_examples(halves: tuple[Path, Path]) -> None:
    table = read_tokens(*halves, EXAMPLES)
    assert table["problem_id"].to_pylist() == list("bbbaacccc")
    assert table["position"].to_pylist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert table["gt_token"].to_pylist() == [30, 31, 0, 40, 0, 50, 51, 52, 0]
    assert table["slm_token"].equals(table["llm_token"])


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(_only("a", "b"), id="a problem too many"),
        pytest.param(EXAMPLES | {"d": Encoded([1], [9, 0])}, id="a problem too few"),
        pytest.param(EXAMPLES | {"a": Encoded([1], [41, 0])}, id="another reference"),
        pytest.param(EXAMPLES | {"a": Encoded([1], [40, 9, 0])}, id="a longer reference"),
    ],
)
def test_other_references_are_refused(
    halves: tuple[Path, Path], examples: Mapping[str, Encoded]
) -> None:
    with pytest.raises(InputError, match=f"{halves[0]}: not the references"):
        read_tokens(*halves, examples)


def test_a_problem_in_two_shards_is_refused(halves: tuple[Path, Path]) -> None:
    _write_llm(halves[1], _only("a"))
    with pytest.raises(InputError, match=f"{halves[1]}: not the references"):
        read_tokens(*halves, EXAMPLES)


def test_a_problem_is_stored_in_only_one_shard(halves: tuple[Path, Path]) -> None:
    _write_llm(halves[1], _only("a"))
    missing = keep_fitting(halves[1], EXAMPLES, LLM)
    (kept,) = halves[1].iterdir()
    held = set(read_table(kept, LLM_TOKEN)["problem_id"].to_pylist())
    assert held in ({"a"}, {"a", "b", "c"})
    assert missing.keys() == EXAMPLES.keys() - held


def test_each_row_gets_its_own_features(halves: tuple[Path, Path]) -> None:
    keys = [("b", 0), ("b", 2), ("a", 1), ("c", 0), ("c", 3)]
    rows = pa.table({"problem_id": [key for key, _ in keys], "position": [n for _, n in keys]})
    feature_NF = read_features(halves[0], rows)
    assert feature_NF.dtype == np.float16
    assert feature_NF.tolist() == [_features(*key) for key in keys]


def test_both_halves_give_the_identity_of_the_pair(halves: tuple[Path, Path]) -> None:
    assert read_identity(*halves) == {
        "slm": {"id": "s", "digest": "1"},
        "llm": {"id": "l", "digest": "2"},
        "feature": "f",
        "dtype": "float32",
        "tokenizer": "t",
        "template": "x",
    }


def test_the_name_of_a_shard_depends_on_problems_prompts_and_references() -> None:
    others = [
        EXAMPLES,
        _only("b", "a"),
        EXAMPLES | {"a": Encoded([2], [40, 0])},
        EXAMPLES | {"a": Encoded([1], [41, 0])},
    ]
    assert len({shard_name(examples) for examples in others}) == len(others)
