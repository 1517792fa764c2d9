"""Choose the rules of router k from its answers, and write its report. Nothing is decoded."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from citer.config.params import Params
from citer.evaluation.choice import Chosen
from citer.evaluation.evidence import HELD_OUT, choose_rules, too_few
from citer.evaluation.measure import Conditions
from citer.evaluation.methods import Row
from citer.evaluation.points import (
    RIVALS_STAMP,
    ROUTER_STAMP,
    Findings,
    read_findings,
    write_findings,
)
from citer.evaluation.sequence import Step, explained
from citer.report.charts import png
from citer.report.frontier import picture
from citer.report.headline import deployed
from citer.report.spread import Seeded, Seeds, seeded
from citer.report.standings import metrics, promise, standings
from citer.stages import paths
from citer.storage.tables import read_as, replacing, table_metadata, write_json


class _Study(NamedTuple):
    """What the routers of an iteration have in common."""

    params: Params
    rivals: Findings
    stamp: Row

    @property
    def conditions(self) -> Conditions:
        return Conditions.stored(self.stamp)

    def choice(self, folder: Path) -> "_Choice":
        """Choose the rules of the router whose answers are in `folder`."""
        settings = self.params.evaluate
        found = read_findings(folder, settings, self.stamp)
        promised = settings.epsilon, settings.delta
        rules, steps = choose_rules(found, self.rivals, self.conditions.measure, *promised)
        points = [*self.rivals.points, *found.points]
        rows = standings(points, rules)
        return _Choice(found.without(HELD_OUT), points, rules, steps, rows)


class _Choice(NamedTuple):
    """The findings of a router, the points of all methods, and the rules that were chosen."""

    found: Findings
    points: list[Row]
    rules: Chosen
    steps: list[Step]
    rows: list[Row]


def run(params: Params, iteration: int) -> None:
    """Write the report of router k.

    Raises InputError unless its answers and the rivals' belong to the same study.
    """
    answers = paths.answers(iteration)
    stamp = table_metadata(paths.RIVALS / "points.parquet")
    rivals = read_findings(paths.RIVALS, params.evaluate, stamp | RIVALS_STAMP)
    study = _Study(params, rivals, stamp | ROUTER_STAMP)
    choice, seeds = study.choice(answers), read_as(paths.seeds(iteration) / paths.TRAINED, Seeds)
    with replacing(paths.report(iteration)) as aside:
        aside.mkdir()
        _write(aside, choice, study)
        if seeds.further:
            spread = [asdict(each) for each in _spread(choice, seeds, answers, study)]
            write_json(aside / paths.SPREAD, spread)
    _print(study, choice, iteration)


def _write(folder: Path, choice: _Choice, study: _Study) -> None:
    """Write the answers, the chosen rules, the metrics and the picture."""
    rules, settings, measure = choice.rules, study.params.evaluate, study.conditions.measure
    method = deployed(rules)
    write_findings(folder, choice.found, settings, study.stamp)
    write_json(folder / "chosen.json", {name: asdict(each) for name, each in rules.items()})
    write_json(folder / "threshold.json", asdict(rules[method]))
    write_json(folder / "path.json", explained(choice.steps, settings.epsilon, settings.delta))
    write_json(folder / "metrics.json", metrics(choice.rows, rules, measure))
    write_json(folder / paths.DEPLOYED, {"method": method, "rule": str(rules[method].rule)})
    (folder / "frontier.png").write_bytes(png(picture(choice.points, rules, measure)))


def _print(study: _Study, choice: _Choice, iteration: int) -> None:
    """Print the promises, the graders' failures, and whether validation has too few questions."""
    console, settings, measure = Console(), study.params.evaluate, study.conditions.measure
    llm_right = (row["correct"] for row in study.rivals.llm_alone("validation").values())
    rules = choice.rules.items()
    promises = (promise(f"{name}_{iteration}", each, measure) for name, each in rules)
    for line in (*promises, *map(str, choice.found.failures)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if few := too_few(llm_right, measure, settings.epsilon, settings.delta):
        console.print(few, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _spread(choice: _Choice, seeds: Seeds, answers: Path, study: _Study) -> Iterator[Seeded]:
    """Yield the results of every seed, that of the router first."""
    measure = study.conditions.measure
    yield from seeded(seeds.router, choice.rows, choice.rules, measure)
    for seed in seeds.further:
        own = study.choice(answers / str(seed))
        yield from seeded(seed, own.rows, own.rules, measure)
