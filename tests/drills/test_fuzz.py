"""After any damage to an input, a command succeeds, or says in one line what to correct.

Of `params.yaml` it names each wrong key in a line of its own.

DRILL_CASE=17 pytest tests/drills/test_fuzz.py     case 17 again
"""

import faulthandler
import gc
import io
import os
import shutil
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

import pytest

from citer.cli.main import call
from citer.errors import LONGEST
from citer.storage.tables import PARTIAL
from tests.drills.files import Files, contents, files_of
from tests.drills.fuzz import damage
from tests.drills.project import READERS, pattern_of
from tests.drills.scale import SCALE, SEED, Record

CASES = 200 * SCALE
ONLY = os.environ.get("DRILL_CASE")
PATTERNS = (*READERS, *["params.yaml"] * 3)  # more often the file that people edit
SECONDS = 30  # a case takes about 0.1

pytestmark = pytest.mark.slow


class Hangs(BaseException):
    """A command hangs. `except Exception` does not catch this."""


def test_no_damage_ends_in_a_traceback_a_hang_or_half_a_file(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    inputs = [path for path in sorted(files_of(template)) if pattern_of(path)]
    failures, tally = [], Counter[tuple[str, int | str]]()
    for case in [int(ONLY)] if ONLY else range(CASES):
        home = tmp_path / str(case)
        shutil.copytree(template, home)
        monkeypatch.chdir(home)
        pattern, description, status, failure = drilled(case, inputs)
        tally[pattern, status] += 1
        if failure:
            failures.append(f"{description}\n{failure}")
        monkeypatch.chdir(template)
        shutil.rmtree(home)
    for (pattern, status), count in sorted(tally.items(), key=str):
        print(f"{count:5} {pattern} {status}")
    assert not failures, f"{len(failures)} of {CASES}, seed {SEED}\n" + "\n\n".join(failures)
    refused = sum(count for (_, status), count in tally.items() if status)
    record_property("damaged inputs of commands, refused in one line", refused)
    record_property("damaged inputs of commands, still read", tally.total() - refused)


def drilled(case: int, inputs: list[Path]) -> tuple[str, str, int | str, str]:
    """Damage one of the inputs, and run a command that reads it.

    Returns the pattern, a description, the exit status, and what is wrong, if anything.
    """
    rng = Random(f"{SEED} {case}")
    pattern = rng.choice(PATTERNS)
    path = rng.choice([path for path in inputs if pattern_of(path) == pattern])
    command = rng.choice(READERS[pattern])
    description = f"case {case}: {damage(rng, path)} of {path}, then {' '.join(command)}"
    print(
        description, file=sys.__stderr__, flush=True
    )  # now, since the command may end the process
    return pattern, description, *ended(command)


def written() -> Files:
    """Return the digests of the current folder's files, without unfinished work."""
    found = contents(Path()).items()
    return {name: digest for name, digest in found if not Path(name).is_relative_to(PARTIAL)}


def ended(command: tuple[str, ...]) -> tuple[int | str, str]:
    """Run a command; return its exit status, and what is wrong, if anything."""
    before, stderr = written(), io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(stderr), at_most(SECONDS):
            status = call(command)
    except Hangs:
        return "hangs", f"more than {SECONDS} s\n{traceback.format_exc()}"
    except Exception as error:
        return type(error).__name__, traceback.format_exc()
    finally:
        gc.unfreeze()
    return status, "; ".join(complaints(status, stderr.getvalue(), before, written()))


def complaints(status: int, stderr: str, before: Files, after: Files) -> Iterator[str]:
    lines = [line for line in stderr.splitlines() if line.startswith("citer: ")]
    if status not in (0, 2):
        yield f"exit status {status}: {lines}"
    whole = stderr.endswith("".join(f"{line}\n" for line in lines))
    of_keys = all(line.startswith("citer: params.yaml: ") for line in lines)  # a line for each
    if status == 2 and not (whole and lines and (of_keys or len(lines) == 1)):
        yield f"not one line: {stderr}"
    if any(len(line) > LONGEST + len("citer: ") for line in lines):
        yield f"a long line: {lines}"
    if left := [name for name in after if name.endswith((".aside", ".old"))]:
        yield f"left behind: {left}"
    if status and (changed := changes(before, after)):
        yield f"refused, but changed: {changed}; {lines}"


def changes(before: Files, after: Files) -> list[str]:
    """List the files that differ, without token shards, which are added and removed singly."""
    names = (name for name, _ in before.items() ^ after.items())
    return sorted({name for name in names if not name.startswith("data/tokens/")})


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise Hangs after `seconds`. The grader uses SIGALRM. A hang in C code ends the process."""

    def hang(*_: object) -> None:
        raise Hangs

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, hang)
    timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGUSR1, before)
