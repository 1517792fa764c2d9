r"""Problems with a short answer that a program can compare, given in `\boxed{}`."""

from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from citer.data.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from citer.data.problems import Problem
    from citer.data.tasks.formats import Format
    from citer.data.tasks.rows import Requires


class Math(Task):
    r"""Rows {"problem", "solution", "answer"}; the last `\boxed{}` of a completion is graded.

    A completion is correct if its box holds the answer: the same string, the same exact number,
    or an expression that math-verify finds equal. In detail:

    - These are numbers: "1,080", "3 200", "+5", "2 1/2", "1.5e3", "3 million",
      `2.5\times 10^3`, `0.1\overline{6}`. A rounded number is another number: 0.333 is not 1/3,
      and 1.41421356 is not `\sqrt{2}`.
    - A unit or a currency is ignored if only one side names it. If both do, it must be the same
      unit under any of its names ("$5", "5 dollars"). Nothing is converted: 1 m is not 100 cm.
    - 50% equals both 50 and 0.5.
    - A number with a base, `11_2`, equals only itself. A ratio or a time of day is compared part by
      part: 3:2 is neither 6:4 nor 3/2.
    - Case and order count in symbols: x is not X, and AB is not BA, but xy is yx. `i` is the
      imaginary unit, unless it is an index.
    - An interval equals its inequality: `[1, 5)` and `1 \le x < 5`.
    - Lists must have equally many values. If both sides have brackets, the brackets must be of
      one kind. Order counts in `(1, 2)` and `[1, 2]`, but not in `\{1, 2\}` or without brackets.
    - Words are compared as a whole, ignoring case. "No solutions" equals "no solution".
    - Answers of more than 400 characters are compared as strings only.
    """

    name = "math"
    wider: str | None = "number"
    fields = ("problem",)
    reference_field = "solution"
    templates = (
        "Solve the problem. Put the final answer in \\boxed{{}}.\nProblem: {question}\nSolution:\n",
    )
    example: ClassVar = {
        "problem": "Ann has 3 bags of 12. Is 3 * 12 ≥ 30?",
        "solution": "3 * 12 = 36.\n\\boxed{36}",
    }

    def formats(self) -> "tuple[Format, ...]":
        return import_module(".formats", __name__).FORMATS

    def problem(self, row: dict[str, Any], requires: "Requires", source: str) -> "Problem":
        read = import_module(".rows", __name__).problem
        return read(self.name, self.stated, row, requires, source)

    def prompt_text(self, problem: "Problem") -> str:
        return self.templates[0].format(question=problem.question)

    def message_text(self, problem: "Problem") -> str:
        return f"{problem.question}\nPut the final answer in \\boxed{{}}."

    def grade(self, problem: "Problem", completion: str) -> bool:
        given = self.stated(completion)
        return given is not None and self._values.same_value(problem.answer, given)

    def same(self, problem: "Problem", one: str, other: str) -> bool:
        """Return whether both state the same value. `same_value` may read its first in more ways.

        Each order counts, so that the result does not depend on it.
        """
        if super().same(problem, one, other):
            return True
        first, second = self.stated(one), self.stated(other)
        if not first or not second:
            return False
        equal: Callable[[str, str], bool] = self._values.same_value
        return equal(first, second) or equal(second, first)

    def extracted(self, problem: "Problem", completion: str) -> str:
        return self.stated(completion) or ""

    def stated(self, text: str) -> str | None:
        """Return the final answer that a text states, or None."""
        return self._values.boxed(text)

    @cached_property
    def _values(self) -> ModuleType:
        return import_module(".values", __name__)


class Number(Math):
    r"""Math whose answer may also be written without a box: "4 + 9 = 13. The answer is 13."

    The last `\boxed{}` counts. Without one, the last number of the completion is graded in its
    place, with a scale ("3 million") and a percent sign, but without any other unit. A last number
    with "!" cannot be read: "13!" may be a factorial.
    """

    name = "number"
    wider = None
    example: ClassVar = {"problem": "What is 4 + 9?", "solution": "4 + 9 = 13. It is 13."}

    def stated(self, text: str) -> str | None:
        return super().stated(text) or import_module(".numbers", __name__).last_number(text)
