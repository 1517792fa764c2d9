"""The report page of a retraining: one HTML file without links to anything else."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from citer.evaluation.choice import Chosen, deployed
from citer.evaluation.cost import Batch
from citer.evaluation.measure import Conditions
from citer.evaluation.methods import Row, label, styles
from citer.report import charts, figures
from citer.report.frontier import alone_of, frontier_charts, lines_of
from citer.report.standings import chosen_point, interval, promise, standings
from citer.report.tokens import Transcript
from citer.storage.schema import HOLDOUT
from citer.storage.tables import read_as, read_table, write_text

CODE = re.compile("`([^`]*)`")


@dataclass(frozen=True)
class PageStudy:
    """The findings of a retraining, with the iteration in the methods' names.

    `batches` are those of which the points have the cost. `others` are the rows of `worth` about
    the deployed rule. `tokens` has the transcripts by iteration, and `holdout` is the table of the
    last router's held-out labels.
    """

    points: Sequence[Row]
    chosen: Chosen
    conditions: Conditions
    batches: Sequence[Batch]
    others: Sequence[Row]
    tokens: Mapping[str, Path]
    holdout: Path

    @property
    def iteration(self) -> str:
        return list(self.tokens)[-1]


def write_page(path: Path, study: PageStudy) -> None:
    """Write the page as one HTML file that loads nothing else.

    The heat map shows the last router beside that of the iteration before. Equal findings give
    equal bytes.
    """
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "percent": charts.percent,
        "label": label,
        "code": _code,
        "interval": interval,
        "svg": lambda chart, name: Markup(charts.svg(chart, name)),
        "sha256": lambda text: b64encode(sha256(text.encode()).digest()).decode(),
    }
    template = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    shown = _headline(study) | _charts(study) | _answers(study)
    write_text(path, environment.from_string(template).render(style=Markup(charts.STYLE), **shown))


def _headline(study: PageStudy) -> dict[str, Any]:
    method = deployed(study.chosen)
    chosen = study.chosen[method]
    return {
        "study": study,
        "chosen": chosen,
        "promise": promise(method, chosen, study.conditions.measure),
        "point": chosen_point(study.points, method, chosen.rule),
        "llm": alone_of(study.points)[1],
        "methods": styles(study.points),
    }


def _charts(study: PageStudy) -> dict[str, Any]:
    measure, lines = study.conditions.measure, lines_of(study.points, study.chosen)
    beside = [row for row in study.others if row["task"] == "all"]
    holdout = read_table(study.holdout, HOLDOUT)
    return {
        "lines": lines,
        "frontier": frontier_charts(lines, alone_of(study.points), measure),
        "worth": figures.worth_chart(beside, measure),
        "left_out": figures.left_out(beside),
        "by_batch": figures.batch_chart(standings(study.points, study.chosen), study.batches),
        "calibration": figures.calibration_chart(holdout),
        "calibration_error": figures.calibration_error(holdout),
    }


def _answers(study: PageStudy) -> dict[str, Any]:
    """Return who writes what, and the last router's answers beside those of the one before."""
    two = list(study.tokens.items())[:-3:-1]
    columns = [(f"router {k}", read_as(file, Transcript)) for k, file in two]
    transcript = columns[0][1]
    return {
        "transcript": transcript,
        "stretches": figures.stretch_chart(transcript.spoken),
        "kinds": figures.kind_chart(transcript.spoken),
        "columns": columns,
        "known": [(name, {each.problem_id: each for each in own.answers}) for name, own in columns],
    }


def _code(text: str) -> Markup:
    """Mark what stands between backticks as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text)).replace("&lt;=", "≤")))
