"""Scores, labels and evaluation are the same bytes and values at one, two and four actors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from citer.executors.base import Executor, I, Job, R, Unit
from citer.progress import Advance
from tests.cluster.conftest import Cluster
from tests.cluster.jobs import Deadly
from tests.test_executors_agree import (  # noqa: F401  fixtures
    RunStages,
    Stages,
    in_line,
    run_stages,
    taught,
)

pytestmark = pytest.mark.slow


@dataclass
class KillingOne:
    """The executor of a cluster, one of whose actors is killed in the middle of a unit."""

    executor: Executor
    folder: Path
    remote = True

    @property
    def workers(self) -> int:
        return self.executor.workers

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        yield from self.executor.run(Deadly(job, self.folder, 1), units, advance)


@pytest.mark.parametrize("joining", [0, 1, 3])
def test_actors_one_of_them_killed_give_the_results_of_one_process(
    run_stages: RunStages,  # noqa: F811
    in_line: Stages,  # noqa: F811
    cluster: Cluster,
    tmp_path: Path,
    joining: int,
) -> None:
    with cluster.machine(joining):
        killing = KillingOne(cluster.executor, tmp_path)
        assert killing.workers == 1 + joining
        assert run_stages(killing) == in_line
    assert len(list(tmp_path.iterdir())) == 1
