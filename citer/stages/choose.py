"""Choose the rules of router k from its answers, and write its report. Nothing is decoded.

`choose 0` chooses among the rules that need no preferences, before there is a router.
"""

from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from citer.config.params import Params
from citer.evaluation.choice import HELD_OUT, choose_rules, deployed, explained, too_few
from citer.evaluation.cost import counted, schedules
from citer.evaluation.measure import Conditions
from citer.evaluation.points import (
    RIVALS_STAMP,
    ROUTER_STAMP,
    Findings,
    read_findings,
    write_findings,
)
from citer.progress import say
from citer.report.charts import png
from citer.report.frontier import picture
from citer.report.standings import chosen_point, metrics, promise, standings
from citer.rule import Rule
from citer.stages import paths
from citer.storage.tables import replacing, table_metadata, write_json


def run(params: Params, iteration: int) -> None:
    """Write the answers of router k, the chosen rules, the metrics and the picture.

    Raises InputError unless its answers and the rivals' belong to the same study.
    """
    settings, stamp = params.evaluate, table_metadata(paths.RIVALS / "points.parquet")
    batches = counted(settings, params.serve)
    rivals = read_findings(paths.RIVALS, batches, stamp | RIVALS_STAMP)
    measure, stamp = Conditions.stored(stamp).measure, stamp | ROUTER_STAMP
    found = rivals
    if iteration:
        found = rivals.joined(read_findings(paths.answers(iteration), batches, stamp))
    promised = settings.epsilon, settings.delta
    rules, steps = choose_rules(found, measure, schedules(params.serve), *promised)
    points, method = found.on_test, deployed(rules)
    kept = found.candidates.where(lambda row: row["split"] != HELD_OUT)
    with replacing(paths.report(iteration)) as aside:
        write_findings(aside, kept, batches, stamp)
        write_json(aside / "chosen.json", {name: asdict(each) for name, each in rules.items()})
        write_json(aside / "threshold.json", asdict(rules[method]))
        write_json(aside / "path.json", explained(steps, *promised))
        write_json(aside / "metrics.json", metrics(standings(points, rules), rules, measure))
        write_json(aside / paths.DEPLOYED, _deployed(found, method, rules[method].rule, params))
        (aside / "frontier.png").write_bytes(png(picture(points, rules, measure)))
    promises = (promise(name, rule, measure) for name, rule in rules.items())
    for line in (*promises, *map(str, kept.failures)):
        say(line)
    own = (pc.field("method") == "llm") & (pc.field("split") == "validation")
    if few := too_few(rivals.outcomes.filter(own)["correct"].to_pylist(), measure, *promised):
        say(few, style="yellow")


def _deployed(found: Findings, method: str, rule: Rule, params: Params) -> dict[str, Any]:
    """Return the deployed rule, and where it serves (`citer.models.bundle.Place`)."""
    validation = [row for row in found.points if row["split"] == "validation"]
    point = chosen_point(validation, method, rule)
    best = min(schedules(params.serve), key=lambda batch: point[batch.column])
    place = params.serve.model_dump(include={"engine", "batch"})
    place["delayed"] = best.schedule == "delayed" or params.serve.batch == 1
    return {"method": method, "rule": str(rule), "serve": place}
