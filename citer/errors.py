"""The one error that is the user's to mend, and the errors of a file that become one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr

BRIEF = Repr()  # a YAML of ten lines can hold a value whose whole text would never end
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 200
LONGEST = 600  # characters of a line
LARGEST = 2**30  # bytes of a text, which is read whole


class InputError(ValueError):
    """Bad input, said in one line: where it is, what was found, what was expected.

    The command line prints it and exits with 2; any other exception is a defect of ours. What
    could not be printed on one line is escaped, and a long line is cut in its middle.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(message: str) -> str:
    """`message` as one printable line of at most `LONGEST` characters."""
    message = _cut(message)  # before each character is looked at
    line = " ".join(message.splitlines())
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))


def _cut(text: str) -> str:
    """Without its middle where it is long: a line's start says where, its end what was expected."""
    half = (LONGEST - 3) // 2
    return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"


def shown(value: object, width: int = 80) -> str:
    """A value that was found in a file, as Python writes it."""
    try:
        text = BRIEF.repr(value)
    except ValueError:  # thousands of digits
        text = f"{type(value).__name__} too long to print"
    return text if len(text) <= width else f"{text[: width - 3]}..."


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise InputError where `path` is no file, or what is read from it cannot be."""
    try:
        if path.exists() and not path.is_file():  # to open a FIFO would wait for its writer
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
    """A whole text file, with or without a byte order mark. Raises InputError."""
    with reading(path):
        if path.stat().st_size > LARGEST:
            expected = f"expected at most {LARGEST:,}, so split it"
            raise InputError(f"{path}: {path.stat().st_size:,} bytes: {expected}")
        return path.read_text(encoding="utf-8-sig")
