"""Choose the rules of router k from its answers, and write its report. Nothing is decoded."""

from dataclasses import asdict

from citer.config.params import Params
from citer.evaluation.evidence import HELD_OUT, choose_rules, too_few
from citer.evaluation.measure import Conditions
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, read_findings, write_findings
from citer.evaluation.sequence import explained
from citer.progress import say
from citer.report.charts import png
from citer.report.frontier import picture
from citer.report.headline import deployed
from citer.report.standings import metrics, promise, standings
from citer.stages import paths
from citer.storage.tables import replacing, table_metadata, write_json


def run(params: Params, iteration: int) -> None:
    """Write the answers of router k, the chosen rules, the metrics and the picture.

    Raises InputError unless its answers and the rivals' belong to the same study.
    """
    settings, stamp = params.evaluate, table_metadata(paths.RIVALS / "points.parquet")
    rivals = read_findings(paths.RIVALS, settings, stamp | RIVALS_STAMP)
    measure, stamp = Conditions.stored(stamp).measure, stamp | ROUTER_STAMP
    found = read_findings(paths.answers(iteration), settings, stamp)
    rules, steps = choose_rules(found, rivals, measure, settings.epsilon, settings.delta)
    found, points = found.without(HELD_OUT), [*rivals.points, *found.points]
    method = deployed(rules)
    with replacing(paths.report(iteration)) as aside:
        aside.mkdir()
        write_findings(aside, found, settings, stamp)
        write_json(aside / "chosen.json", {name: asdict(each) for name, each in rules.items()})
        write_json(aside / "threshold.json", asdict(rules[method]))
        write_json(aside / "path.json", explained(steps, settings.epsilon, settings.delta))
        write_json(aside / "metrics.json", metrics(standings(points, rules), rules, measure))
        write_json(aside / paths.DEPLOYED, {"method": method, "rule": str(rules[method].rule)})
        (aside / "frontier.png").write_bytes(png(picture(points, rules, measure)))
    promises = (promise(f"{name}_{iteration}", rule, measure) for name, rule in rules.items())
    for line in (*promises, *map(str, found.failures)):
        say(line)
    llm_right = (row["correct"] for row in rivals.llm_alone("validation").values())
    if few := too_few(llm_right, measure, settings.epsilon, settings.delta):
        say(few, style="yellow")
