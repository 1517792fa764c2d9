"""Show the progress of a stage as an artifact on Prefect's page, if a server is configured."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from citer.progress import PROGRESS
from citer.storage.tables import PARTIAL
from flows.server import has_server

FOLDER = PARTIAL / "progress"
SECONDS = 10.0  # between two updates
LAST_SECONDS = 30.0  # to wait for the last update; a server that is lost must not stop a stage


@contextmanager
def progress_shown(stage: str) -> Iterator[Mapping[str, str]]:
    """Update an artifact while a stage runs. Yield the variables that the stage's command needs.

    The artifact has the percentage and the line that `citer.progress` writes to a file. It is
    created with the first line.
    """
    if not has_server():
        yield {}
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    file, done = (FOLDER / f"{stage}.json").absolute(), threading.Event()
    file.unlink(missing_ok=True)  # left by a killed flow
    within = copy_context().run  # the task run to which the artifact belongs
    thread = threading.Thread(target=within, args=(_update, stage, file, done), daemon=True)
    thread.start()
    try:
        yield {PROGRESS: str(file)}
    finally:
        done.set()
        thread.join(LAST_SECONDS)
        file.unlink(missing_ok=True)


def _update(stage: str, file: Path, done: threading.Event) -> None:
    """Send the file from time to time if it has changed, and once more at the end."""
    key = re.sub("[^a-z0-9]+", "-", f"stage-{stage}".lower())
    sent, artifact, ended = "", None, False
    while not ended:
        ended = done.wait(SECONDS)
        with suppress(Exception):  # a lost server must not end a stage
            if (text := file.read_text()) == sent:
                continue
            written = json.loads(text)
            percent, line = written["percent"] or 0.0, written["line"]
            if artifact:
                update_progress_artifact(artifact, percent, line)
            else:
                artifact = cast(UUID, create_progress_artifact(percent, key, line))
            sent = text
