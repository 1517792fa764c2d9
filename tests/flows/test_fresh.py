"""The plan of a run: which stages DVC reports as unchanged."""

import json
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from citer.errors import InputError
from citer.stages.paths import CODE
from citer.storage.code import stage_digests
from citer.storage.tables import write_text
from flows.dvc_commands import locked
from flows.repro import LOCK, one_run, plan, reproduce, stage_graph
from tests.flows.conftest import Pipeline

STAGES = {
    "first": {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]},
    "second": {"cmd": "cp b c", "deps": ["b"], "outs": ["c"]},
    "third": {"cmd": "cp c d", "deps": ["c"], "outs": ["d"]},
    "zero": {"cmd": "cp z y", "deps": ["z"], "outs": ["y"]},  # depends on none of them
}


def fresh() -> set[str]:
    return {name for name, fresh in plan().items() if fresh}


def bring_up_to_date() -> None:
    for name in stage_graph():
        reproduce(name, timedelta(minutes=1), print)


@pytest.mark.slow
def test_stages_are_fresh_unless_they_depend_on_a_stale_one(pipeline: Pipeline) -> None:
    pipeline(STAGES)
    Path("a").write_text("1")
    Path("z").write_text("1")
    assert fresh() == set()
    bring_up_to_date()
    assert fresh() == {"first", "second", "third", "zero"}
    Path("c").unlink()  # `third` may change with what `second` writes
    assert fresh() == {"first", "zero"}
    Path("a").write_text("2")
    assert fresh() == {"zero"}


def test_the_digests_of_the_code_do_not_change_while_another_run_works(
    pipeline: Pipeline,
) -> None:
    pipeline(STAGES)
    CODE.write_text("{}")
    messages: list[str] = []

    def run() -> None:
        with one_run(messages.append):
            plan()

    waiting = Thread(target=run)
    with locked(LOCK, "", print):
        waiting.start()
        while not messages:
            waiting.join(0.1)
        assert CODE.read_text() == "{}"
    waiting.join()
    assert json.loads(CODE.read_text()) == stage_digests()


def test_what_is_left_of_later_iterations_is_put_aside(pipeline: Pipeline) -> None:
    """Else `report`, which depends on whole folders, would be stale in every other checkout."""
    pipeline(STAGES)
    reports = Path("data/reports")
    for name in ("0", "1", "2", "3", "rivals", "2-mine"):
        write_text(reports / name / "a", name)
    for _ in range(2):
        write_text(reports / "3/a", "3")
        plan()
        assert {each.name for each in reports.iterdir()} == {"0", "1", "2", "rivals", "2-mine"}
    assert Path("data/.partial/unused/reports/3/a").read_text() == "3"


def test_a_dvc_yaml_that_dvc_cannot_read_is_reported_in_one_line(pipeline: Pipeline) -> None:
    pipeline({"prepare": {"cmds": "true"}})
    with pytest.raises(InputError, match=r"^dvc status --json: '\./dvc\.yaml' validation failed"):
        plan()
