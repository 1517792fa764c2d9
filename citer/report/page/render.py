"""Write the report page."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from citer.data.tasks import task_label
from citer.evaluation.methods import label, styles
from citer.report.page.batches import batch_chart, batches_of, winners
from citer.report.page.chart import Chart
from citer.report.page.frontier import frontier_chart
from citer.report.page.rivals import left_out, rivals_chart
from citer.report.page.router import (
    calibration_chart,
    calibration_error,
    curve_chart,
    histogram_chart,
)
from citer.report.page.speech import LEVELS, kind_chart, shown, stretch_chart
from citer.report.page.study import PageStudy
from citer.report.page.words import MEANINGS, interval, percent
from citer.report.standings import promise
from citer.report.tokens import Transcript, read_transcript
from citer.storage.tables import write_text

HOME = Path(__file__).parent
TEMPLATES = ("page.html", "chart.html", "sections.html")
CODE = re.compile("`([^`]*)`")
STYLE, SCRIPT = "page.css", "page.js"
WIDE, NARROW = (560, 440), (400, 400)  # of the frontier's charts, on a desktop and on a phone


class Champion(NamedTuple):
    """The router that serves now: its name, such as `version 7`, and its `tokens.json`."""

    name: str
    tokens: Path


def write_page(path: Path, study: PageStudy, champion: Champion | None = None) -> None:
    """Write the page as one HTML file that loads nothing else.

    The heat map shows the last router beside the champion, or without one beside the router of the
    iteration before. Equal findings give equal bytes.
    """
    environment = Environment(
        autoescape=True,
        loader=DictLoader({name: _read(name) for name in TEMPLATES}),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"percent": percent, "label": label, "task": task_label, "code": _code}
    text = environment.get_template("page.html").render(
        style=Markup(_read(STYLE)),
        script=Markup(_read(SCRIPT)),
        **_headline(study),
        **_charts(study),
        **_answers(study, champion),
    )
    write_text(path, text)


def _read(name: str) -> str:
    return (HOME / name).read_text(encoding="utf-8")


def _headline(study: PageStudy) -> dict[str, Any]:
    method, chosen = study.deployed
    point, batches = study.point, batches_of(study.point)
    tasks = ["all", *sorted({p["task"] for p in study.points} - {"all"})]
    return {
        "iteration": study.iteration,
        "conditions": study.conditions,
        "measure": study.conditions.measure,
        "rule": f"{chosen.rule:.4g}",
        "chosen": chosen,
        "promise": promise(method, chosen, study.conditions.measure),
        "point": point,
        "llm": study.llm,
        "interval": interval(point),
        "llm_interval": interval(study.llm),
        "costs": [(batch, point[batch.column]) for batch in batches],
        "batches": batches,
        "schedules": sorted({batch.schedule for batch in batches} - {""}),
        "meanings": [(label(m), MEANINGS[m]) for m in styles(study.points) if m in MEANINGS],
        "winners": {task: winners(study.points, task) for task in tasks},
    }


def _charts(study: PageStudy) -> dict[str, Any]:
    holdout = study.holdout
    settings = study.points, study.chosen, study.conditions.measure
    return {
        "frontier": [
            (name, frontier_chart(*settings, size, near=near))
            for near in (False, True)
            for name, size in (("wide", WIDE), ("narrow", NARROW))
        ],
        "rivals": rivals_chart(study.beside_rivals, study.conditions.measure),
        "left_out": left_out(study.beside_rivals, study.conditions.measure),
        "by_batch": batch_chart(study.standings),
        "calibration": calibration_chart(holdout) if holdout else None,
        "calibration_error": calibration_error(holdout) if holdout else None,
        "histogram": histogram_chart(holdout) if holdout else None,
        "curves": list(_curves(study)),
    }


def _curves(study: PageStudy) -> Iterator[tuple[str, Chart, list[str]]]:
    """Yield a caption, a chart and the names of its lines for finetuning and for the routers."""
    if losses := study.finetune_curve:
        yield (
            "Finetuning the SLM:",
            curve_chart("finetuning", "step", [("curve0", losses)]),
            ["training"],
        )
    lines = [
        (f"curve{number}" + " earlier" * (router != study.iteration), curve[name])
        for router, curve in study.router_curves.items()
        for number, name in enumerate(("train_loss", "holdout_loss"))
    ]
    if lines:
        caption = f"Router {study.iteration}, dashed those before it; a dot is the least loss:"
        yield caption, curve_chart("router", "epoch", lines), ["training", "holdout"]


def _answers(study: PageStudy, champion: Champion | None) -> dict[str, Any]:
    """Return the charts of who writes what, and the heat map with both routers' answers."""
    transcripts = study.transcripts
    if study.iteration not in transcripts:
        return {"transcript": None}
    last = transcripts[study.iteration]
    columns = [(f"router {study.iteration}", last)]
    if champion:
        columns.append((champion.name, read_transcript(champion.tokens)))
    elif before := [number for number in transcripts if number != study.iteration]:
        columns.append((f"router {before[-1]}", transcripts[before[-1]]))
    return {
        "transcript": last,
        "stretches": stretch_chart(last),
        "kinds": kind_chart(last),
        "levels": LEVELS,
        "columns": [(name, transcript.rule) for name, transcript in columns],
        "heat": _heat(columns),
    }


def _heat(columns: Sequence[tuple[str, Transcript]]) -> list[dict[str, Any]]:
    """Pair the answers of all columns by question. The first column decides the questions."""
    known = [(name, {each.problem_id: each for each in own.answers}) for name, own in columns]
    return [
        {
            "question": question,
            "answers": [
                (name, answer, shown(answer))
                for name, answers in known
                if (answer := answers.get(question.problem_id))
            ],
        }
        for question in columns[0][1].answers
    ]


def _code(text: str) -> Markup:
    """Mark what stands between backticks as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text)).replace("&lt;=", "≤")))
