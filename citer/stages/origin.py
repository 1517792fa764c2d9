"""Find the row of a user's file from which a problem was made."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from citer.config.sources import PrepareParams, SourceFile
from citer.data.files import read_rows
from citer.data.importing import parse_row, recognised
from citer.data.tasks.rows import RowError
from citer.errors import InputError, TemporaryError

PROBLEM = re.compile(r"problem ([0-9a-f]{16})\b")  # in an error's message


@contextmanager
def rows_named(params: PrepareParams) -> Iterator[None]:
    """Put file and line of its row before the message of an InputError that names a problem."""
    try:
        yield
    except TemporaryError:
        raise
    except InputError as error:
        named = PROBLEM.search(str(error))
        place = named and _place(named[1], (*params.train, *params.validation, *params.test))
        if not place:
            raise
        raise InputError(f"{place}: {error}") from None


def _place(problem_id: str, files: Iterable[SourceFile]) -> str | None:
    """Return FILE:LINE, or None if no file has the row, as with embedded and served questions."""
    for file in files:
        with suppress(InputError):  # the file was removed or changed
            for line, row in read_rows(Path(file.path), lambda error: None):
                with suppress(RowError):
                    task, format = recognised(row, [file.task])
                    found = parse_row(row, task, "question", format=format, answered=False)
                    if found.problem_id == problem_id:
                        return f"{file.path}:{line}"
    return None
