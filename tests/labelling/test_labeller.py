"""Labels in chunks equal labels in one piece, and no finished chunk is labelled again."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.executors.base import InLine
from citer.labelling.labeller import Labeller, Rollout, label_in_chunks
from citer.storage.schema import PREFERENCE
from citer.storage.tables import read_table, write_table
from tests.labelling.conftest import Taught


@pytest.fixture
def labeller(taught: Taught, monkeypatch: pytest.MonkeyPatch) -> Labeller:
    monkeypatch.setattr("citer.labelling.labeller.CHUNK", 5)
    engine = Engine(taught.pair, 8, max_new_tokens=12)
    rollout = Rollout(engine, SLM_ALONE)
    return Labeller(taught.problems, taught.examples, rollout, 1)


def test_chunks_make_up_the_whole_table(taught: Taught, labeller: Labeller, tmp_path: Path) -> None:
    whole = labeller.label(taught.tokens, lambda _: None)
    assert label_in_chunks(InLine(), labeller, taught.tokens, tmp_path).equals(whole)
    assert len(list(tmp_path.iterdir())) == 3, "12 problems, 5 a chunk"


def test_a_large_pair_on_a_cpu_has_small_chunks(
    taught: Taught, labeller: Labeller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that another device left are not taken for these."""
    whole = label_in_chunks(InLine(), labeller, taught.tokens, tmp_path)
    monkeypatch.setattr("citer.labelling.labeller.SLOW_CHUNK", 3)
    slow = replace(labeller, is_slow=True)
    assert label_in_chunks(InLine(), slow, taught.tokens, tmp_path).equals(whole)
    assert len(list(tmp_path.glob("*-of-3.parquet"))) == 3
    assert len(list(tmp_path.glob("*-of-4.parquet"))) == 4


def test_a_finished_chunk_is_not_labelled_again(
    taught: Taught, labeller: Labeller, tmp_path: Path
) -> None:
    whole = label_in_chunks(InLine(), labeller, taught.tokens, tmp_path)
    marked, missing, _ = sorted(tmp_path.iterdir())
    missing.unlink()
    chunk = read_table(marked, PREFERENCE)
    iteration = pa.array([99] * len(chunk), pa.int32())
    chunk = chunk.set_column(7, PREFERENCE.field("iteration"), iteration)
    write_table(marked, chunk, PREFERENCE, {})
    again = label_in_chunks(InLine(), labeller, taught.tokens, tmp_path)
    assert again.slice(0, len(chunk)).equals(chunk)
    assert again.slice(len(chunk)).equals(whole.slice(len(chunk)))
