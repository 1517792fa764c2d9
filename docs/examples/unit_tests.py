"""A task: rows of MBPP and of HumanEval as they are published. Copy this file to data/own.

prepare.train: [{path: data/own/mbpp.jsonl, task: "python:data/own/unit_tests.py:UnitTests"}]

MBPP (https://huggingface.co/datasets/google-research-datasets/mbpp), full or sanitized:
    {"text", "code", "test_list", "test_setup_code"}
    {"prompt", "code", "test_list", "test_imports"}
HumanEval (https://github.com/openai/human-eval):
    {"prompt", "canonical_solution", "test", "entry_point"}
"""

import ast
import builtins
import json
import random
import re

from citer.program import Program

MBPP = "{}\nYour code should pass these tests:\n{}"
HUMANEVAL = "Complete this function. Repeat its head.\n```python\n{}\n```"
# A fence may be indented, as in a list, and the last one of Python may be open.
OPEN, END = r"(?:^([ \t]*))?```[ \t]*", r"[ \t]*\n"
FENCES = (rf"{OPEN}(?:python|py)[\d.]*{END}(.*?)(?:```|\Z)", rf"{OPEN}{END}(.*?)```")


class UnitTests:
    time_limit = 10  # seconds for all tests of an answer
    memory_limit = 1024  # MiB

    def problem(self, row):
        """An answer is right if it passes all tests; the share of MBPP's tests is reported."""
        if "entry_point" in row:
            code = row["prompt"] + row["canonical_solution"] if "canonical_solution" in row else ""
            tests = {name: row[name] for name in ("prompt", "test", "entry_point") if name in row}
            question = HUMANEVAL.format(row["prompt"].strip())
        else:
            code, names = row.get("code"), ("test_list", "test_imports", "test_setup_code")
            tests = {name: row[name] for name in names if name in row}
            text = row.get("text") or row["prompt"]
            question = MBPP.format(text.strip(), "\n".join(row["test_list"]))
        reference = (
            "```python\n{}\n```".format(code.replace("\r\n", "\n").strip()) if code else None
        )
        return {"question": question, "answer": json.dumps(tests), "reference": reference}

    def prompt(self, problem):
        return f"{problem.question}\nWrite the code alone, in one ```python fence.\n"

    def grade(self, problem, completion):
        tests, code = json.loads(problem.answer), code_in(completion)
        if "entry_point" in tests:
            with Program(f"{tests['prompt']}\n{code}") as program:
                return passes_check(program, **tests)
        imports = "\n".join(tests.get("test_imports") or [])
        with Program(f"{code}\n{imports}\n{tests.get('test_setup_code', '')}") as program:
            passed = [passes(program, test, imports) for test in tests["test_list"]]
        return sum(passed) / len(passed)


class Remote:
    """A function or a value of the program. As an argument of a call, it stays there."""

    def __init__(self, program, name):
        self.program, self.name = program, name

    def __call__(self, *arguments, **named):
        return self.program.call(self.name, *arguments, **named)

    def __repr__(self):
        return self.name


def code_in(completion):
    """Join the fences of Python, else those without a language, else take the whole text."""
    completion = completion.replace("\r\n", "\n")
    for fence in FENCES:
        if found := re.findall(fence, completion, re.DOTALL | re.IGNORECASE | re.MULTILINE):
            return "\n".join(re.sub(f"^{indent}", "", code, flags=re.M) for indent, code in found)
    return completion


def passes(program, test, imports=""):
    """Run an assertion here. Only the calls of the answer's functions run in the program.

    Names of Python's own functions mean these, whatever the program defines.
    """
    names = {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    known = {name: Remote(program, name) for name in names - set(dir(builtins))}
    return runs(lambda: exec(f"{imports}\n{test}", known))


def passes_check(program, prompt, test, entry_point):
    """Run HumanEval's `check` here. Other functions of the prompt are those that it shows."""
    candidate, names = Remote(program, entry_point), {}
    exec(f"{prompt}\n{test}", names)
    names[entry_point] = candidate
    random.seed(0)
    return runs(lambda: names["check"](candidate))


def runs(call):
    try:
        call()
    except Exception:
        return False
    return True
