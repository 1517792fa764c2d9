"""`rivals` and `evaluate` go on after a kill, and end in the same bytes."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from citer.config.params import Params
from citer.data.problems import read_problems, write_problems
from citer.errors import InputError
from citer.executors import tables as executor
from citer.stages import evaluate, paths, rivals
from citer.stages.asked import Asked
from citer.storage.tables import PARTIAL
from tests.stages.conftest import files, run_killed
from tests.stages.sections import with_section

ALL = 100  # more parts than there are
Run = Callable[[Params], dict[str, bytes]]
Stage = Callable[[], dict[str, bytes]]


class StoppedError(Exception):
    """Ends a stage where a kill could."""


@pytest.fixture
def one_slot(params: Params) -> Params:
    return with_section(params, "decode", slots=1)


def run_rivals(params: Params) -> dict[str, bytes]:
    rivals.run(params)
    return files(paths.RIVALS)


def run_evaluate(params: Params) -> dict[str, bytes]:
    evaluate.run(params, 1)
    return files(paths.answers(1))


STAGES = [("rivals", run_rivals, ()), ("evaluate", run_evaluate, (1,))]


@pytest.fixture(params=[run_rivals, run_evaluate])
def stage(request: pytest.FixtureRequest, one_slot: Params) -> Stage:
    if request.param is run_evaluate:
        rivals.run(one_slot)
    return lambda: request.param(one_slot)


def parts() -> list[Path]:
    return sorted(PARTIAL.rglob("*.parquet"))


@contextmanager
def writing_at_most(count: int) -> Iterator[list[Path]]:
    """Stop a stage before it writes more parts. Yields the list of those that it wrote."""
    written, write_table = [], executor.write_table

    def write(path, *args):
        if len(written) == count:
            raise StoppedError
        write_table(path, *args)
        written.append(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "write_table", write)
        yield written


def test_a_stopped_stage_keeps_its_parts_and_ends_in_the_same_bytes(stage: Stage) -> None:
    with writing_at_most(ALL) as every:
        whole = stage()
    assert not parts(), "a finished stage leaves none"
    with writing_at_most(3) as first, pytest.raises(StoppedError):
        stage()
    assert parts() == sorted(first)
    with writing_at_most(ALL) as later:
        assert stage() == whole
    assert [*first, *later] == every
    assert not parts()


@pytest.mark.usefixtures("two_threads")
def test_two_workers_give_the_same_bytes_as_one(stage: Stage) -> None:
    forked = stage()
    torch.set_num_threads(1)
    assert stage() == forked


@pytest.mark.slow
@pytest.mark.parametrize(("name", "run", "iteration"), STAGES)
def test_a_killed_stage_ends_in_the_same_bytes(
    one_slot: Params, name: str, run: Run, iteration: tuple[int, ...]
) -> None:
    rivals.run(one_slot)
    whole = run(one_slot)
    run_killed(one_slot, name, *iteration, module="citer.executors.tables", function="write_table")
    assert len(parts()) == 1
    assert run(one_slot) == whole


def test_a_damaged_part_is_refused_in_one_line(stage: Stage) -> None:
    with writing_at_most(1), pytest.raises(StoppedError):
        stage()
    [part] = parts()
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(InputError, match=f"^{part}: "):
        stage()


def test_progress_starts_where_the_work_stands(
    one_slot: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing_at_most(1), pytest.raises(StoppedError):
        rivals.run(one_slot)
    capsys.readouterr()
    monkeypatch.setattr("citer.progress.LOG_SECONDS", 0)
    rivals.run(one_slot)
    first = re.search(r"slm on validation: (\d+) of 6 answers", capsys.readouterr().err)
    assert first
    assert int(first[1]) > 2


@pytest.fixture
def folder_of(params: Params) -> Callable[..., Path]:
    """Return the folder of `evaluate`'s sweeps under changed settings."""

    def folder(
        router: int = 1,
        section: str = "evaluate",
        iteration: int = 1,
        seed: int = params.seed,
        **settings: object,
    ) -> Path:
        changes = with_section(params, section, **settings).model_copy(update={"seed": seed})
        asked, origin = Asked.read(changes), paths.router(router)
        return asked.study("evaluate", changes, origin, iteration=iteration).partial

    return folder


def test_settings_that_change_no_answer_keep_finished_parts(folder_of) -> None:
    before = folder_of()
    assert folder_of(llm_floor=0.5, epsilon=0.5, delta=0.5, batches=(1,)) == before


@pytest.mark.parametrize(
    "change",
    [
        *({"router": 2}, {"risks": (0.5,)}, {"seed": 7}),
        *({"section": "decode", key: 7} for key in ("slots", "max_new_tokens")),
        {"section": "pair", "dtype": "bfloat16"},
        {"section": "serve", "batch": 8},  # another cost screens the rules
        {"section": "train", "holdout": 0.6},
    ],
)
def test_other_inputs_have_another_folder_and_remove_the_earlier_parts(folder_of, change) -> None:
    before = folder_of()
    assert folder_of(**change) != before
    assert not before.exists()


def test_an_iteration_leaves_the_parts_of_another(folder_of) -> None:
    before = folder_of()
    assert folder_of(iteration=2, router=2) != before
    assert before.exists()


def test_other_references_have_another_folder(folder_of) -> None:
    before = folder_of()
    path = paths.referenced("test")
    first, *others = read_problems(path)
    write_problems(path, [replace(first, answer="never"), *others], {})
    assert folder_of() != before
