"""Run Python code that a model wrote, in `grade` of a task of the user.

    with Program(completion) as program:
        return program.call("double", 2) == 4

The code runs in a process of its own, which sees the arguments of calls and never what `grade`
compares the results with. Results come back as text and are plain data, so that none can equal
everything.
"""

import ast
import os
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

LONGEST = 2**24  # bytes of a result

# Results of subclasses, such as Counter, become the plain type.
SERVER = """
import os
requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
os.dup2(null, 1)
names = {"__name__": "answer"}

def plain(value):
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return kind(map(plain, value))
    return value

exec(eval(requests.readline()), names)
for line in requests:
    try:
        reply = ascii(plain(eval(line, names)))
    except BaseException:
        reply = ""
    print(reply, file=replies, flush=True)
"""


class ProgramError(Exception):
    """The code has no such function, raised an exception, ended, or returned no plain data."""


class Program:
    """A process that runs Python code, and then calls of the functions that the code defines.

    The time and memory of the answer limit it. What it prints is dropped.
    """

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-P", "-c", SERVER],  # -S halves the time to start
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send(ascii(code))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    def call(self, name: str, *arguments: object, **named: object) -> Any:
        """Call a function. Arguments and results are plain data: None, truths, finite numbers,
        texts, bytes, and lists, tuples, sets and dicts of such. Raises ProgramError.
        """
        self._send(f"{name}(*{arguments!a}, **{named!a})")
        assert self._process.stdout
        text = self._process.stdout.readline(LONGEST)
        try:
            return ast.literal_eval(text.decode())
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise ProgramError(name) from None

    def _send(self, line: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ProgramError(line) from None
