"""Studies on a pair of your own, in a clone of this project.

The part `project` of a study names what it changes in params.yaml and how many rows of your files
it uses. It runs the stages up to one of them in the clone, which takes hours on a CPU; a killed
study continues there.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml

from benchmarks.report import machine
from citer.errors import InputError, read_text
from citer.sections import Count, Listed, Section
from citer.stages import paths
from citer.storage.tables import read_json, write_text

COARSE = "Few rules were tried (the study's file). Numbers between them are no measurements."


class Rows(Section):
    """How many rows of a file go to each file below data/own, and a system message for each."""

    counts: Mapping[str, Count]
    system: str | None = None  # the settings have that of the other tasks


class Project(Section):
    """What a study changes in params.yaml, the rows that it needs, and the last stage that runs."""

    params: Mapping[str, Any]
    rows: Annotated[tuple[Rows, ...], Listed]
    stage: str


class Own(NamedTuple):
    """Folders of a pair, and files of rows."""

    slm: Path
    llm: Path
    rows: Sequence[Path]

    @classmethod
    def of(cls, slm: Path | None, llm: Path | None, rows: Sequence[Path]) -> "Own":
        if not (slm and llm and rows):
            raise InputError("this study needs --slm, --llm, --rows and --work")
        return cls(slm, llm, rows)


def with_changes(settings: Any, changes: Any) -> Any:
    """Return settings with other values, section by section."""
    if isinstance(settings, dict) and isinstance(changes, dict):
        changed = {key: with_changes(settings.get(key), each) for key, each in changes.items()}
        return settings | changed
    return changes


def settings_of(project: Project, own: Own) -> dict[str, Any]:
    """Return the settings of params.yaml with those of a study and the folders of a pair."""
    settings = yaml.safe_load(read_text(Path("params.yaml")))
    for name, section in project.params.items():
        settings[name] = section if name == "iterations" else settings[name] | section
    settings["pair"] |= {"slm": str(own.slm), "llm": str(own.llm)}
    return settings


def continued(project: Project, own: Own, work: Path) -> None:
    """Run the stages in the clone `work`, which is made if it is missing."""
    settings = settings_of(project, own)
    if not work.exists():
        subprocess.run(["git", "clone", "--quiet", str(Path.cwd()), str(work)], check=True)
    write_text(work / "params.yaml", yaml.safe_dump(settings, sort_keys=False))
    for source, rows in zip(own.rows, project.rows, strict=True):
        write_rows(source, work / "data/own", rows)
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": "."}
    command = [f"{scripts}/dvc", "repro", project.stage]
    subprocess.run(command, cwd=work, env=environment, check=True)


def write_rows(source: Path, folder: Path, rows: Rows) -> None:
    """Write the first rows of a JSON Lines file to a file for each of the counts.

    Raises InputError if the file has too few rows.
    """
    lines, needed = read_text(source).splitlines(keepends=True), sum(rows.counts.values())
    if len(lines) < needed:
        raise InputError(f"{source}: {len(lines)} rows, expected {needed} or more")
    left = (with_system(line, rows.system) if rows.system else line for line in lines)
    for name, count in rows.counts.items():
        write_text(folder / f"{name}.jsonl", "".join(islice(left, count)))


def with_system(line: str, system: str) -> str:
    """Give a row of mathematics a system message of its own."""
    row = json.loads(line)
    turns = [("system", system), ("user", row.pop("problem"))]
    messages = [{"role": role, "content": content} for role, content in turns]
    return f"{json.dumps({'messages': messages, **row})}\n"


def run_results(target: Path) -> dict[str, Any]:
    """Return the figures and the table of a finished run, whose picture goes beside the results."""
    shutil.copyfile(paths.SUMMARY / "frontier.png", target.with_suffix(".png"))
    return {
        "metrics": read_json(paths.SUMMARY / "metrics.json"),
        "machine": machine(),
        "note": f"{COARSE}\n\n{read_text(paths.SUMMARY / 'table.md')}",
    }
