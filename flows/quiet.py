"""Keep tracebacks of expected errors out of Prefect's logs."""

import logging

from citer.errors import InputError

LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


def shorten(record: logging.LogRecord) -> bool:
    """Put the line of an InputError in the place of its traceback. Keeps every record."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, InputError):
        record.msg, record.args = str(error), ()
        record.exc_info = record.exc_text = None
    return True


def shorten_expected_errors() -> None:
    """Let Prefect log an InputError of a flow or task as its line, without a traceback."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(shorten)  # a second time, it does nothing
