"""A task: write a Python function, which unit tests check. Copy it to data/own.

prepare.train: [{path: data/own/functions.jsonl, task: "python:data/own/functions.py:Functions"}]
"""

import ast
import builtins
import re
from functools import partial

from citer.program import Program

# A fence may be indented, as in a list, and the last one of Python may be open.
OPEN, END = r"(?:^([ \t]*))?```[ \t]*", r"[ \t]*\n"
FENCES = (rf"{OPEN}(?:python|py)[\d.]*{END}(.*?)(?:```|\Z)", rf"{OPEN}{END}(.*?)```")


class Functions:
    """Rows {"text", "code", "tests"}: the tests are statements, one assert each."""

    time_limit = 5  # seconds for all tests of an answer
    memory_limit = 1024  # MiB

    def problem(self, row):
        tests = "\n".join(row["tests"]) if "tests" in row else None
        return {"question": row["text"], "answer": tests, "reference": row.get("code")}

    def prompt(self, problem):
        return f"Write a Python function.\n{problem.question}\n"

    def grade(self, problem, completion):
        tests = problem.answer.split("\n")
        with Program(code_in(completion)) as program:
            return sum(passes(program, test) for test in tests) / len(tests)


def code_in(completion):
    """Return the last fence of Python, else that without a language, else the whole text."""
    completion = completion.replace("\r\n", "\n")
    for fence in FENCES:
        if found := re.findall(fence, completion, re.DOTALL | re.IGNORECASE | re.MULTILINE):
            indent, code = found[-1]
            return re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
    return completion


def passes(program, test):
    """Run a test here. The functions that it calls run in the program, which never sees the test.

    Names of Python's own functions mean these, whatever the program defines.
    """
    names = {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    functions = {name: partial(program.call, name) for name in names - set(dir(builtins))}
    try:
        exec(test, functions)
    except Exception:
        return False
    return True
