"""Scores, labels and answers are the same bytes on every executor."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from citer.config.params import PairParams, Params, ScoreParams
from citer.data.problems import Problem
from citer.data.tokens import read_tokens
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, routed
from citer.decoding.served import verifier_of
from citer.decoding.verifier import Query
from citer.errors import InputError
from citer.evaluation.bounds import random
from citer.evaluation.sweep import Line, request, sweep
from citer.executors.base import Executor, I, InLine, Job, R, Unit, WorkerParams
from citer.executors.processes import CPU, Forked, Spawned
from citer.labelling.labeller import Labeller, Rollout, label_in_chunks
from citer.labelling.scoring import score_half
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.pair import Pair, load_pair
from citer.models.router import Router
from citer.progress import Advance
from citer.rule import Rule
from tests.heads import random_router
from tests.killing import Killing, end_workers
from tests.taught import make_taught_pair, problems

PLACEMENT = PairParams(slm="slm", llm="llm", device="cpu", dtype="float64")
RULE = Rule("risk", 0.5, 0.5)


class Pickling(InLine):
    """Runs pickled copies of the units in this process, in reverse order."""

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        job, units = pickle.loads(pickle.dumps((job, units)))
        yield from super().run(job, units[::-1], advance)


class Taught(NamedTuple):
    folders: PairFolder
    pair: Pair
    problems: list[Problem]
    router: Router


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    questions = problems(12)
    folders = PairFolder(*make_taught_pair(tmp_path_factory.mktemp("taught"), questions))
    router = random_router(32, seed=5, slope=20.0)
    return Taught(folders, load_pair(folders, PLACEMENT), questions, router)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.parquet")}


def score(taught: Taught, folder: Path) -> dict[str, bytes]:
    own, workers = ScoreParams(batch_tokens=600), WorkerParams()
    params = Params.model_construct(pair=PLACEMENT, score=own, workers=workers)
    for name in ("slm", "llm"):
        score_half(name, taught.folders, taught.problems, folder / name, params)
    return files(folder)


def label(
    executor: Executor, pair: Pair, taught: Taught, tokens: Path, partial: Path
) -> dict[str, bytes]:
    examples = pair.prompts.encode_all(taught.problems)
    by_id = {problem.problem_id: problem for problem in taught.problems}
    engine = Engine(pair, 8, max_new_tokens=12, delayed=True)
    rollout = Rollout(engine, routed(taught.router, RULE))
    labeller = Labeller(by_id, examples, rollout, 1)
    rows = read_tokens(tokens / "slm", tokens / "llm", examples)
    label_in_chunks(executor, labeller, rows, partial)
    return files(partial)


def evaluate(executor: Executor, pair: Pair, taught: Taught, folder: Path) -> dict[str, bytes]:
    lines = [
        Line("router", taught.router.heads["stand"], [Rule("score", 0.5), RULE]),
        Line("random", partial(random, 17), [Rule("score", 0.3)]),
    ]
    sweep(executor, Engine(pair, 2, max_new_tokens=12), taught.problems, lines, folder)
    return files(folder)


class Stages(NamedTuple):
    """The files of each stage's heavy part on one executor."""

    tokens: dict[str, bytes]
    labels: dict[str, bytes]
    answers: dict[str, bytes]


RunStages = Callable[[Executor], Stages]


@pytest.fixture(scope="module")
def run_stages(taught: Taught, tmp_path_factory: pytest.TempPathFactory) -> RunStages:
    def run(executor: Executor) -> Stages:
        folder = tmp_path_factory.mktemp("stages")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("citer.models.outlined.executor_for", lambda placed, workers: executor)
            patch.setattr("citer.labelling.labeller.CHUNK", 2)
            patch.setattr("citer.labelling.scoring.SHARD", 2)
            tokens = score(taught, folder)
            pair, _ = open_pair(taught.folders, PLACEMENT, WorkerParams())
            assert (pair.slm.network.device.type == "meta") == executor.remote, "no weights here"
            run_by = executor, pair, taught
            return Stages(
                tokens,
                label(*run_by, folder, folder / "labels"),
                evaluate(*run_by, folder / "answers"),
            )

    return run


@pytest.fixture(scope="module")
def in_line(run_stages: RunStages) -> Stages:
    stages = run_stages(InLine())
    assert [len(files) for files in stages] == [12, 6, 3]
    return stages


WORKERS = (1, 2, 4)
FORKED = [pytest.param(Forked(n), id=f"forked-{n}") for n in WORKERS]
SPAWNED = [
    pytest.param(Spawned([CPU] * n), id=f"spawned-{n}", marks=pytest.mark.slow) for n in WORKERS
]


@pytest.mark.parametrize("executor", [*FORKED, *SPAWNED])
def test_workers_that_are_killed_give_the_same_bytes(
    run_stages: RunStages, in_line: Stages, executor: Executor
) -> None:
    killing = Killing(executor)
    assert run_stages(killing) == in_line
    assert killing.killed >= 4, "one in each half of the tokens, labels and answers"
    end_workers()


def test_pickled_copies_in_another_order_give_the_same_bytes(
    run_stages: RunStages, in_line: Stages
) -> None:
    assert run_stages(Pickling()) == in_line


def test_a_pickled_model_is_loaded_from_its_folder(taught: Taught) -> None:
    slm = taught.pair.slm
    pickled = pickle.dumps(slm)
    assert len(pickled) < 1000, "no weights"
    loaded = pickle.loads(pickled)
    assert replace(loaded, network=slm.network) == slm
    weights = slm.network.state_dict()
    for name, weight in loaded.network.state_dict().items():
        assert torch.equal(weight, weights[name])


def test_a_pickled_engine_is_a_new_idle_one(taught: Taught) -> None:
    engine = Engine(taught.pair, 8, max_new_tokens=12, delayed=True)
    idle = pickle.dumps(engine)
    asked = [request(problem, taught.pair) for problem in taught.problems]
    answers = list(engine.decode(asked, LLM_ALONE))
    engine.submit(asked[0], LLM_ALONE)
    engine.step()
    pickled = pickle.dumps(engine)
    assert len(pickled) == len(idle), "no caches, no requests"
    loaded = pickle.loads(pickled)
    assert (loaded.slots, loaded.limits, loaded.delayed) == (8, engine.limits, True)
    assert loaded.llm_work.forwards == 0
    assert [a.token_ids for a in loaded.decode(asked, LLM_ALONE)] == [a.token_ids for a in answers]


def test_a_pickled_verifier_has_an_empty_cache(taught: Taught) -> None:
    verifier = verifier_of(taught.pair.llm, taught.pair.vocabulary, 2)
    empty = pickle.dumps(verifier)
    with torch.inference_mode():
        verdicts = verifier.verdicts([Query([1, 2, 3], 3)])
        assert len(pickle.dumps(verifier)) == len(empty)
        assert pickle.loads(empty).verdicts([Query([1, 2, 3], 3)]) == verdicts


def test_a_pickled_model_whose_folder_changed_is_refused(tmp_path: Path) -> None:
    slm, llm = make_taught_pair(tmp_path, problems(1), steps=1)
    pickled = pickle.dumps(load_pair(PairFolder(slm, llm), PLACEMENT))
    with (slm / "config.json").open("a") as config:
        config.write("\n")
    with pytest.raises(InputError, match=f"{slm}: changed during the run"):
        pickle.loads(pickled)
