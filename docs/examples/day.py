"""A day of traffic that moves: the promise is revoked, a retraining runs, its router serves.

    python docs/examples/day.py FOLDER

FOLDER is a clone in which `citer run` has ended. The champion answers `REQUESTS` questions, of
which `SHADOW` are shadowed. From `SHIFT` on, most of them are about names and in a form that no
model has seen. A retraining on the log runs before request `AGAIN`. Here the LLM alone answers
*all* questions, too, so that the risk can be drawn. Writes `docs/day.{json,png}`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import altair as alt
import typer

from citer.cli.answers import fetched
from citer.config.params import load_params
from citer.data.importing import parse_question
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.decoding.policy import weight_bytes
from citer.demo.knowledge import NAMES, OTHER_WORLD, TRUTH, knowledge
from citer.demo.toy import rows
from citer.evaluation.cost import Prices, Trace
from citer.models.folder import Carded
from citer.models.pair import LanguageModel
from citer.progress import say
from citer.report.charts import chart, in_light, png, svg
from citer.rule import LLM, Rule
from citer.serving.deployment import Deployment, Reply, deploy, served_pair, stored_rule
from citer.serving.evidence import Evidence
from citer.serving.log import Traffic
from citer.serving.promise import Promise, stored_promise
from citer.serving.shadow import Keeper
from citer.stages import paths
from citer.storage.tables import write_json
from citer.storage.yaml_file import edited
from flows.tracking.registry import resolved

SEED, REQUESTS, SHIFT, AGAIN, CHUNK = 23, 2000, 500, 1500, 20
MOVED = 0.6  # share of the questions after the shift
SHADOW, FALSE_ALARMS = 0.25, 500.0  # a day is short: see `serve` in params.yaml
LOG = Path("data/own/traffic")
WINDOW = 100  # requests of a point of the picture


class Point(NamedTuple):
    """A request: whether its answer differs from the LLM's, and its bytes, of the LLM's alone."""

    version: str
    rule: str
    differs: bool
    cost: float


def questions(seed: int) -> Iterator[Problem]:
    """Yield the questions of a day, none of which says its answer."""
    random, seen = Random(f"day {seed}"), knowledge(TRUTH)
    other = knowledge(OTHER_WORLD)
    # Goods have the names of towns, and towns those of goods.
    moved = replace(seen, goods=other.towns, towns=other.goods)
    draws = {task: rows(task, REQUESTS, 1000 + seed, "pipeline") for task in ("math", "mc")}
    for number in range(REQUESTS):
        if number >= SHIFT and random.random() < MOVED:
            goods = moved.goods.sample(random, 4, 0.5)
            listed = f"{', '.join(goods[:3])} and {goods[3]}"
            text = f"{random.choice(NAMES)} buys one each of {listed}. How many coins is that?"
            yield parse_question({"problem": text}, ("math", "mc"))
        else:
            row = next(draws[random.choice(("math", "mc"))])
            asked = {key: row[key] for key in ("problem", "question", "choices") if key in row}
            yield parse_question(asked, ("math", "mc"))


class Server:
    """A version that answers, with the evidence about its promise and the log of its answers."""

    def __init__(
        self,
        router: str,
        traffic: Traffic,
        start: int = 1,
        loaded: LanguageModel | Carded | None = None,
    ) -> None:
        params = load_params()
        self.version, self.events = router.removeprefix("models:/"), list[str]()
        with fetched(router) as bundle:
            folders, rule = served_pair(bundle, params.pair), stored_rule(bundle)
            self.deployment = deploy(bundle, folders, params.pair, rule, params.answer, loaded)
            # An exact rule has no promise, and no answer by it is shadowed.
            none = Promise(path=[str(rule)] * 2, graded=None, same=0.05, delta=0.05)
            promise = none if rule.exact else stored_promise(bundle)
        serve = params.serve.model_copy(update={"shadow": SHADOW, "false_alarms": FALSE_ALARMS})
        evidence = Evidence(paths.EVIDENCE)  # the gate reads it
        random = Random(f"{SEED} {start}")
        self.keeper = Keeper(self.version, promise, evidence, serve, self._told, random=random)
        pair = self.deployment.pair
        stamp = pair.identity | {"version": self.version}
        self.log = traffic.observer(stamp, pair.tokenizer.decode)

    def _told(self, _version: str, _standing: object, step: Any) -> None:
        self.events.append(f"step {self.keeper.standing.place}: {step.rule:.3g}")

    def answer(self, asked: Sequence[Problem]) -> Iterator[Point]:
        """Answer questions by the rule in force, and shadow some of them."""
        own, rule = self.deployment, self.keeper.rule
        routed, alone = ([*own.replies(asked, rule=each)] for each in (rule, LLM))
        for reply, llm in zip(routed, alone, strict=True):
            problem, needed = reply.problem, self.keeper.draw()
            # Exact rules need no shadow answer: theirs is the LLM's own.
            known = LLM in needed or rule.exact
            self.log(reply._replace(reference=llm.completion if known else None))
            if needed:
                texts = {rule: reply.completion, LLM: llm.completion}
                for each in {*needed} - {*texts}:
                    [other] = own.replies([problem], rule=each)
                    texts[each] = other.completion
                self.keeper.take(problem, texts)
            same = find_task(problem.task).same(problem, llm.completion, reply.completion)
            cost = _bytes(own, reply, rule) / _bytes(own, llm, LLM)
            yield Point(self.version, f"{rule:.3g}", not same, cost)


def _bytes(own: Deployment, reply: Reply, rule: Rule) -> int:
    prices = Prices.of(own.pair, weight_bytes(own.policy(rule).scorer))
    prompt = len(own.pair.prompts.prompt_ids(reply.problem))
    trace = Trace.of(prompt, len(reply.answer.token_ids), reply.answer.visits)
    return prices.moved(trace.slm, trace.llm)


def retrain() -> None:
    """Let `citer run` learn from the log, and judge by it: the promise is about such questions."""
    params = Path("params.yaml")
    settings = {
        "prepare.traffic": [{"path": str(LOG), "most": REQUESTS}],
        "prepare.shares": {"sft": 0.5, "preference": 0.2, "validation": 0.2, "test": 0.1},
        "prepare.toy.validation": 10,
        "prepare.toy.test": 10,
        "evaluate.against": "llm",
    }
    params.write_text(edited(params, settings))
    command = [str(Path(sys.executable).with_name("citer")), "run"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": "."}, check=True)


def day() -> tuple[list[Point], list[dict[str, Any]]]:
    """Return all requests, and what happened at which of them."""
    points, events = list[Point](), list[dict[str, Any]]()
    asked = [*questions(SEED)]
    with closing(Traffic(LOG)) as traffic:
        server = Server(resolved("models:/citer-router@champion"), traffic)
        for start in range(0, REQUESTS, CHUNK):
            if start == AGAIN:
                traffic.flush()
                retrain()
                newest = resolved("models:/citer-router@champion")
                events.append(
                    {
                        "request": start,
                        "event": f"retrained: {newest.removeprefix('models:/')} serves",
                    }
                )
                if newest.removeprefix("models:/") != server.version:
                    server = Server(newest, traffic, 2, server.deployment.pair.llm)
            points += server.answer(asked[start : start + CHUNK])
            events += [{"request": len(points), "event": each} for each in server.events]
            server.events.clear()
            say(f"{len(points):,} of {REQUESTS:,} requests, {server.version}, {points[-1].rule}")
    return points, events


def summary(points: Sequence[Point], events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return risk and cost between the events."""
    ends = sorted({0, SHIFT, AGAIN, REQUESTS, *(each["request"] for each in events)})
    return [
        {
            "requests": f"{first + 1} to {last}",
            "version": points[first].version,
            "rule": points[last - 1].rule,
            "differs": fmean(point.differs for point in points[first:last]),
            "cost": fmean(point.cost for point in points[first:last]),
        }
        for first, last in pairwise(ends)
    ]


def picture(points: Sequence[Point], events: Sequence[dict[str, Any]]) -> str:
    """Draw risk and cost of each `WINDOW` requests, and the events, as SVG."""
    names = {"differs": "answers that differ from the LLM's", "cost": "bytes, LLM alone = 1"}
    drawn = [
        {"request": end, "what": title, "share": fmean(getattr(p, name) for p in own)}
        for end in range(WINDOW, len(points) + 1, WINDOW)
        for own in [points[end - WINDOW : end]]
        for name, title in names.items()
    ]
    marks = [{"request": SHIFT, "event": "the traffic moves"}, *events]
    listed = [each | {"row": k} for k, each in enumerate(marks)]
    along = alt.X("request:Q", title="requests", scale=alt.Scale(domain=[0, REQUESTS]))
    lines = chart(drawn).mark_line(point=True)
    lines = lines.encode(along, alt.Y("share:Q", title=None), alt.Color("what:N", title=None))
    shown = chart(listed)
    rule = shown.mark_rule(strokeDash=[4, 3]).encode(along)
    above = alt.layer(lines, rule).properties(width=760, height=260)
    # Events that follow each other closely would stand on each other in the picture.
    place = alt.Y("row:O", axis=None)
    dots = shown.mark_point(filled=True).encode(along, place)
    names = shown.mark_text(align="left", dx=8).encode(along, place, alt.Text("event:N"))
    below = alt.layer(dots, names).properties(width=760, height=16 * len(marks))
    both = alt.vconcat(above, below).resolve_scale(x="shared")
    return in_light(svg(both, "day"))


def main(project: Annotated[Path, typer.Argument(help="Where `citer run` has ended.")]) -> None:
    """Run the day, and draw it."""
    here = Path(__file__).parents[1]
    with chdir(project):
        points, events = day()
    write_json(here / "day.json", {"parts": summary(points, events), "events": events})
    (here / "day.png").write_bytes(png(picture(points, events)))


if __name__ == "__main__":
    typer.run(main)
