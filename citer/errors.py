"""InputError, the error for bad input, its messages, and TemporaryError."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr

BRIEF = Repr()  # limited: with aliases, ten lines of YAML describe a value of any length
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 200
LONGEST = 600  # characters of a message
LARGEST = 2**30  # bytes of a text file; it is read into memory as a whole


class InputError(ValueError):
    """Bad input. The message is one line: the place, the value, and what was expected.

    Several errors of one file have a line each. The command line prints them and exits with 2. Any
    other exception is a bug. Characters that cannot be printed are escaped, and the middle of a
    long line is cut out.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(one_line, lines)))


class TemporaryError(InputError):
    """The cause may pass, such as a server that does not answer. The flow retries.

    The command line exits with 1.
    """


def one_line(message: str, longest: int = LONGEST) -> str:
    """Return `message` as one printable line of at most `longest` characters."""
    message = _cut(message, longest)  # first, because the rest takes time for each character
    line = " ".join(message.splitlines())
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in line), longest)


def _cut(text: str, longest: int) -> str:
    """Cut out the middle of a long text. Its start has the place, its end what was expected."""
    half = (longest - 3) // 2
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


def shown(value: object, width: int = 80) -> str:
    """Return a value of a file as Python writes it, in at most `width` characters."""
    try:
        text = BRIEF.repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"{type(value).__name__} too long to print"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def with_extra(name: str) -> str:
    """Say how to install an extra. `citer` on the package index is another project."""
    return f"in a clone of citer: pip install '.[{name}]'"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise InputError if `path` is not a file or reading from it fails."""
    try:
        if path.exists() and not path.is_file():  # opening a FIFO would wait for a writer
            raise InputError(f"{path}: not a file, expected one")
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error.reason} at {error.start}") from None
    except RecursionError:
        raise InputError(f"{path}: brackets nested too deeply") from None


def read_text(path: Path) -> str:
    """Return the content of a text file, without its byte order mark. Raises InputError."""
    with reading(path):
        if path.stat().st_size > LARGEST:
            expected = f"expected at most {LARGEST:,}, so split it"
            raise InputError(f"{path}: {path.stat().st_size:,} bytes: {expected}")
        return path.read_text(encoding="utf-8-sig")


def without_password(text: str) -> str:
    """Return an address, or a text with one, without users and passwords, to print it."""
    return re.sub(r"(?<=//)[^/\s]*(?=@)|(?<=[?&]password=)[^&\s]*", "…", text)
