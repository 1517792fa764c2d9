"""Import a class of the user, and call its methods."""

import hashlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, NamedTuple

from citer.errors import InputError, read_text, shown

METHODS = {"problem": "problem(row)", "prompt": "prompt(problem)"}


class Limits(NamedTuple):
    """What a class may set, for one answer: seconds, MiB of address space, the share to pass."""

    time_limit: float = 5.0
    memory_limit: float = 1024.0
    pass_share: float = 1.0


MOST = Limits(time_limit=3600.0, memory_limit=2.0**20, pass_share=1.0)


class Source:
    """A class in a file of the user, and an object of this class."""

    def __init__(self, file: Path, class_name: str) -> None:
        """Import the file and create the object. Raises InputError as `call` does."""
        text = read_text(file)
        self.file, self.class_name = file, class_name
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        kind = _class(_module(file, text), file, class_name)
        self.limits = Limits(*(_limit(kind, name, file) for name in Limits._fields))
        with _refused(file):
            self.own = kind()

    def has(self, method: str) -> bool:
        return callable(getattr(self.own, method, None))

    def call(self, method: str, argument: object) -> Any:
        """Call a method of the object. Raises InputError with file and line if it raises."""
        with _refused(self.file, f", in {method}()"):
            return getattr(self.own, method)(argument)


def _module(file: Path, text: str) -> ModuleType:
    """Run the code of a file as a module, without bytecode: DVC would see a changed folder."""
    module = ModuleType(f"own_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    with _refused(file):
        exec(compile(text, file, "exec"), module.__dict__)
    return module


@contextmanager
def _refused(file: Path, place: str = "") -> Iterator[None]:
    """Raise InputError with file and line if code of the user raises."""
    try:
        yield
    except KeyboardInterrupt:  # of the terminal
        raise
    except BaseException as error:
        raise InputError(f"{described(error, file)}{place}") from None


def _class(module: ModuleType, file: Path, name: str) -> type:
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        classes = (each for each in vars(module).values() if isinstance(each, type))
        own = [each.__name__ for each in classes if each.__module__ == module.__name__]
        raise InputError(f"{file}: no class {name}; it has {', '.join(own) or 'none'}")
    if missing := [method for method in METHODS if not callable(getattr(kind, method, None))]:
        expected = ", ".join(METHODS.values())
        raise InputError(f"{file}: {name} has no method {missing[0]}; expected {expected}")
    return kind


def _limit(kind: type, name: str, file: Path) -> float:
    most, value = getattr(MOST, name), getattr(kind, name, getattr(Limits(), name))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most:
        expected = f"expected a number above 0, at most {most:g}"
        raise InputError(f"{file}: {kind.__name__}.{name}: {shown(value)}; {expected}")
    return float(value)


def described(error: BaseException, file: Path) -> str:
    """Return `FILE:LINE: TYPE: MESSAGE`; the line is the last one of the file that raised it."""
    lines = [
        frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines, error = [error.lineno], SyntaxError(error.msg)
    where = f"{file}:{lines[-1]}" if lines else str(file)
    return f"{where}: {summed_up(error)}"


def summed_up(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # an error of the user may not be printable
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def checked_share(method: str, value: object) -> float:
    """Return what a method gave as a share. Raises ValueError unless it is a number from 0 to 1."""
    try:
        share = math.nan if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = math.nan
    if not 0 <= share <= 1:
        expected = "expected True, False or a number from 0 to 1"
        raise ValueError(f"{method}() returned {shown(value)}; {expected}")
    return share
