"""Formats of math rows: the task's own, which is also that of MATH, and GSM8K's."""

import re

from citer.data.tasks.formats import Format, Row, given
from citer.data.tasks.rows import Requires, RowError, text_if

CALCULATOR = re.compile(r"<<[^<>]*>>")  # <<48/2=24>>
BOX = re.compile(r"\\boxed\s*\{")
BARE_BOX = re.compile(r"\\boxed\s*([\w.,/-]+)(?=\s*\$)")  # $\boxed 9$
FRAME = re.compile(r"\\fbox\s*(?=\{)")


def _own(row: Row, requires: Requires) -> Row:
    """Give the answer of a solution of MATH its box, if it has another frame or no braces."""
    solution = row.get("solution")
    if not isinstance(solution, str) or BOX.search(solution):
        return row
    return row | {"solution": FRAME.sub(r"\\boxed", BARE_BOX.sub(r"\\boxed{\1}", solution))}


def _is_math(row: Row) -> bool:
    return given(row, "problem") and not _is_gsm8k(row)


def _is_gsm8k(row: Row) -> bool:
    answer = row.get("answer")
    asks = given(row, _question_field(row)) and not given(row, "solution")
    return asks and isinstance(answer, str) and "####" in answer


def _question_field(row: Row) -> str:
    """Return where a row of GSM8K has its question: `messages` are read into the task's field."""
    return "problem" if given(row, "messages") else "question"


def _gsm8k(row: Row, requires: Requires) -> Row:
    """Box the final answer, which follows `####`, and remove the calculator's marks."""
    expected = "a solution with a last line `#### n`"
    answer = text_if(row, "answer", expected, required=requires != "question")
    return {
        "problem": row.get(_question_field(row)),
        "solution": answer and _boxed(answer, expected),
    }


def _boxed(answer: str, expected: str) -> str:
    steps, mark, final = answer.rpartition("####")
    final = final.strip()
    if not mark or not final or "\n" in final:
        raise RowError("answer", f"ends {answer[-60:]!r}", expected)
    return f"{CALCULATOR.sub('', steps).strip()}\nThe final answer is: \\boxed{{{final}}}".lstrip()


FORMATS = (
    Format("math", "`problem`", _is_math, _own),
    Format(
        "gsm8k",
        "`question` and `answer` with ####",
        _is_gsm8k,
        _gsm8k,
        {"problem": "question", "solution": "answer"},
    ),
)
