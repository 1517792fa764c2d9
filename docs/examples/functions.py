"""A task: write a Python function, which unit tests check. Copy it to data/own.

prepare.train: [{path: data/own/functions.jsonl, task: "python:data/own/functions.py:Functions"}]
"""

import re


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
        return sum(passes(code_in(completion), test) for test in tests) / len(tests)


def code_in(completion):
    fenced = re.findall(r"```(?:python)?\n(.*?)```", completion, re.DOTALL)
    return fenced[-1] if fenced else completion


def passes(code, test):
    names = {"__name__": "answer"}
    try:
        exec(code, names)
        exec(test, names)
    except Exception:
        return False
    return True
