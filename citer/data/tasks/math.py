r"""Problems with a short answer that a program can compare, given in `\boxed{}`."""

import re
from typing import ClassVar

from citer.data.problems import Problem, problem_key
from citer.data.tasks.math_values import LONGEST, last_number, same_value
from citer.data.tasks.rows import Format, Row, RowError, as_text, given, text, text_if
from citer.data.tasks.task import Task

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]")
BARE_BOX = re.compile(r"\\boxed\s*([\w.,/-]+)(?=\s*\$)")  # $\boxed 9$
CALCULATOR = re.compile(r"<<[^<>]*>>")  # <<48/2=24>>
# Signs of a whole solution, not a final answer: sentences, GSM8K's marks, text before a box.
RATIONALE = re.compile(r"####|<<|(?:\d|[a-z]{3})[.!?]\s+[A-Z][a-z]|\w\W*\\boxed")


def boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{}`, or None if there is none or it is not closed.

    MATH has some answers in other frames: `\\boxed 9$` and `\\fbox{9}`.
    """
    start = max((box.end() for box in BOX.finditer(text)), default=None)
    if start is None:
        return next(reversed(BARE_BOX.findall(text)), None)
    depth = 1
    for brace in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[start : brace.start()].strip()
    return None


def _is_gsm8k(row: Row) -> bool:
    answer = row.get("answer")
    asks = given(row, "question") or given(row, "messages")
    solved = isinstance(answer, str) and "####" in answer
    return asks and solved and not given(row, "solution")


def _gsm8k(row: Row) -> Row:
    """Box the final answer, which follows `####`, and remove the calculator's marks."""
    expected = "a solution with a last line `#### n`"
    answer = text(row, "answer", expected)
    # `messages` are read into the field of the task.
    question = row.get("problem" if given(row, "messages") else "question")
    steps, mark, final = answer.rpartition("####")
    final = final.strip()
    if not mark or not final or "\n" in final:
        raise RowError("answer", f"ends {answer[-60:]!r}", expected)
    steps = CALCULATOR.sub("", steps).strip()
    solution = f"{steps}\nThe final answer is: \\boxed{{{final}}}".lstrip()
    return {"problem": question, "solution": solution}


class Math(Task):
    r"""Rows {"problem", "solution", "answer"}; the last `\boxed{}` of a completion is graded.

    A completion is correct if its box holds the answer:

    - the same plain number, exactly: "1,080", "-5", "0.5", "1/2", "2 1/2", `\frac{1}{2}`, "3
      million", "1.5e3", `1.5 \times 10^3`. A currency before it and a unit after it are ignored: a
      word of three letters or more, whichever it is, or a short one such as km/h, cm^2 and °C.
      Two different short units go to math-verify. 50% equals both 50 and 0.5. A rounded number is
      another one: 0.333 is not 1/3.
    - the same words as a whole, ignoring case;
    - the same ratio, time of day or number with a base (`11_2`), digit by digit;
    - else an expression, list, set or interval that math-verify finds equal. It compares to six
      decimals, takes X for x, and BA for AB.

    Answers of more than 400 characters are compared as strings only.
    """

    name = "math"
    wider: str | None = "number"
    fields = ("problem",)
    reference_field = "solution"
    reference_text = "a solution in training files"
    answer_field = "solution"
    answer_text = "a solution in training files, or elsewhere an `answer` to grade against"
    templates = (
        "Solve the problem. Put the final answer in \\boxed{{}}.\nProblem: {question}\nSolution:\n",
    )
    example: ClassVar = {
        "problem": "Ann has 3 bags of 12. Is 3 * 12 ≥ 30?",
        "solution": "3 * 12 = 36.\n\\boxed{36}",
    }
    formats: ClassVar = (
        Format("math", "`problem`", lambda row: given(row, "problem") and not _is_gsm8k(row)),
        Format(
            "gsm8k",
            "`question` and `answer` with ####",
            _is_gsm8k,
            _gsm8k,
            {"problem": "question", "solution": "answer"},
        ),
    )

    def problem(self, row: Row, source: str) -> Problem:
        """Read the question. At least one of `solution` and `answer` holds the answer."""
        question = text(row, "problem", "the problem")
        reference = text_if(row, "solution", self.reference_text)
        answer = text_if({"answer": as_text(row.get("answer"))}, "answer", "the final answer")
        if answer and (len(answer) > LONGEST or RATIONALE.search(answer)):
            found = f"a whole solution, ends {answer[-60:]!r}"
            raise RowError("answer", found, "the final answer alone, and the rest in `solution`")
        if reference is not None and answer is None:
            answer = self.stated(reference)
            if not answer:
                found = f"no complete \\boxed{{}}, ends {reference[-60:]!r}"
                raise RowError("solution", found, "the final answer in its last \\boxed{}")
        key = problem_key(self.name, question, None)
        return Problem(key, self.name, question, None, reference, answer, source, split="")

    def prompt_text(self, problem: Problem) -> str:
        return self.templates[0].format(question=problem.question)

    def message_text(self, problem: Problem) -> str:
        return f"{problem.question}\nPut the final answer in \\boxed{{}}."

    def grade(self, problem: Problem, completion: str) -> bool:
        given = self.stated(completion)
        return given is not None and same_value(problem.answer or "", given)

    def same(self, problem: Problem, one: str, other: str) -> bool:
        """Return whether both state the same value, in any order: `same_value` may depend on it."""
        if super().same(problem, one, other):
            return True
        first, second = self.stated(one), self.stated(other)
        if not first or not second:
            return False
        return same_value(first, second) or same_value(second, first)

    def extracted(self, problem: Problem, completion: str) -> str:
        return self.stated(completion) or ""

    def stated(self, text: str) -> str | None:
        """Return the final answer that a text states, or None."""
        return boxed(text)


class Number(Math):
    r"""Math whose answer may also be written without a box: "4 + 9 = 13. The answer is 13."

    The last `\boxed{}` counts. Without one, the last number of the completion is graded in its
    place, with a scale ("3 million") and a percent sign, but without any other unit.
    """

    name = "number"
    wider = None
    example: ClassVar = {"problem": "What is 4 + 9?", "solution": "4 + 9 = 13. It is 13."}

    def stated(self, text: str) -> str | None:
        return boxed(text) or last_number(text)
