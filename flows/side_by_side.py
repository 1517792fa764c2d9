"""Run the stages of a plan, several at a time, each after the stages that it depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import Any

from dvc.utils.serialize import dumps_yaml, parse_yaml_for_update
from prefect.futures import PrefectFuture

from citer.storage.tables import write_text
from flows.dvc_commands import DVC_LOCK, LOCK, Log, locked
from flows.gpus import VISIBLE, Gpus, Room
from flows.repro import Planned
from flows.stages import Setting, stage_task

Seconds = dict[str, float | None]


def run_stages(plan: Mapping[str, Planned], room: Room, timeout: timedelta, log: Log) -> Seconds:
    """Run the stages. Return the seconds of each, or None if it was unchanged.

    After a failure no other stage starts, those that run are finished, and the first error is
    raised. If the flow is interrupted, they end at once. `dvc.lock` lists the stages in the order
    in which they would have been added one after another.
    """
    setting = Setting(timeout, beside=room.places > 1)
    listed = [*_lock()["stages"]] if setting.beside and LOCK.exists() else []
    try:
        seconds = _Run(plan, room, setting, log).seconds()
    except BaseException:  # also the signal by which Prefect cancels a flow
        setting.stop.set()
        raise
    if setting.beside:
        _sort_lock([*listed, *(name for name in plan if name not in listed)], log)
    return {name: seconds[name] for name in plan}


class _Run:
    def __init__(self, plan: Mapping[str, Planned], room: Room, setting: Setting, log: Log) -> None:
        self.plan, self.room, self.setting, self.log = plan, room, setting, log
        self.order = TopologicalSorter({name: stage.after for name, stage in plan.items()})
        self.order.prepare()
        self.ready: list[str] = []
        self.running: dict[str, Gpus] = {}
        self.futures: dict[str, PrefectFuture[float | None]] = {}
        self.ended: SimpleQueue[str] = SimpleQueue()

    def seconds(self) -> Seconds:
        """Run all stages. Raises the error of the first that failed."""
        taken: Seconds = {}
        failure: Exception | None = None
        while True:
            if not failure:
                self._start()
            if not self.running:
                break
            name = self.ended.get()
            del self.running[name]
            try:
                taken[name] = self.futures[name].result()
                self.order.done(name)
            except Exception as error:
                failure = failure or error
                if self.running:
                    self.log(f"{name} failed; waiting for {', '.join(self.running)}")
        if failure:
            raise failure
        return taken

    def _start(self) -> None:
        self.ready += self.order.get_ready()
        for name, gpus in self.room.starts(self.ready, self.running).items():
            self.ready.remove(name)
            self.running[name] = gpus
            self._submit(name, {VISIBLE: ",".join(gpus)} if gpus else {})

    def _submit(self, name: str, variables: dict[str, str]) -> None:
        stage, setting = self.plan[name], replace(self.setting, variables=variables)
        before = [self.futures[each] for each in stage.after]  # Prefect's page shows them
        future = stage_task(name).submit(
            name, setting, stage.fresh, wait_for=before, return_state=False
        )
        self.futures[name] = future
        future.add_done_callback(lambda _: self.ended.put(name))


def _lock() -> dict[str, Any]:
    return parse_yaml_for_update(LOCK.read_text(encoding="utf-8"), LOCK)


def _sort_lock(names: Sequence[str], log: Log) -> None:
    with locked(DVC_LOCK, "DVC", log):
        content = _lock()
        for name in names:
            if name in content["stages"]:
                content["stages"].move_to_end(name)
        write_text(LOCK, dumps_yaml(content))
