"""Label problems in chunks. Each is a unit with its own file; a killed run keeps finished ones."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from citer.executors.base import Executor
from citer.executors.choose import write_tables
from citer.labelling.labeller import Labeller
from citer.progress import progress
from citer.storage.schema import PREFERENCE
from citer.storage.tables import read_table

CHUNK = 64  # problems; each chunk is decoded by itself, so its labels do not depend on others
SLOW_CHUNK = 8  # of a large pair on a CPU, which may take a minute for a problem


def label_in_chunks(
    executor: Executor, labeller: Labeller, tokens: pa.Table, partial: Path, title: str = "label"
) -> pa.Table:
    """Return the preference table of the joined `tokens`.

    Each chunk is written to a file in `partial`. A chunk with a file is not labelled again.
    """
    pair = labeller.outcome.pair
    chunks = _chunks(tokens, SLOW_CHUNK if pair.is_slow else CHUNK, partial)
    missing = {path: chunk for path, chunk in chunks.items() if not path.exists()}
    contests = sum(int((labeller.cases(chunk) == "contested").sum()) for chunk in missing.values())
    with progress(f"{title} {labeller.iteration}", 2 * contests, "branches") as advance:
        write_tables(executor, labeller.label, missing, PREFERENCE, {}, advance)
    return pa.concat_tables(read_table(path, PREFERENCE) for path in chunks)


def _chunks(tokens: pa.Table, size: int, partial: Path) -> dict[Path, pa.Table]:
    """Split the tokens by problems.

    A file's name has the number of chunks: a run that resumes on another device may need another.
    """
    chunks = list(_split(tokens, size))
    return {partial / f"{n:06}-of-{len(chunks)}.parquet": each for n, each in enumerate(chunks, 1)}


def _split(tokens: pa.Table, size: int) -> Iterator[pa.Table]:
    """Yield slices of `size` problems; the rows of a problem are adjacent."""
    problem_N = tokens["problem_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(problem_N, prepend=-1))[::size]
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        yield tokens.slice(start, end - start)
