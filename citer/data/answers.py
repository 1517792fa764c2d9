"""The one grader: rollouts, evaluation and the check of every reference ask it alone."""

from citer.data.options import named_labels
from citer.data.problems import Problem
from citer.data.values import boxed, same_value

__all__ = ["boxed", "grade"]


def grade(problem: Problem, completion: str) -> bool:
    r"""Whether `completion` (what follows the prompt, never the prompt) answers `problem` right.

    math: what the last `\boxed{}` holds is the answer: the same string, the same exact number,
    or equal by math-verify. Where taste decides:

    - Numbers are "1,080", "3 200", "+5", "2 1/2", "1.5e3", "3 million", `2.5\times 10^3`. A
      rounded quotient is another number: 0.333 is not 1/3.
    - A unit or currency that only one of the two names is ignored. Two must be the same unit in
      any of its names ("$5", "5 dollars"); nothing is converted, so 1 m is not 100 cm.
    - 50% is 50 as well as 0.5.
    - A number with a base, `11_2`, equals only itself.
    - Lists have as many values on both sides, and brackets, where both have them, are alike. Order
      counts in `(1, 2)` and `[1, 2]`, not in `\{1, 2\}` nor without brackets.
    - Words are compared as a whole, whatever the case.
    - More than 400 characters are compared as a string alone.

    mc: the last statement names the right option and no other, whatever the case, by

    - label: "(C)", "C.", "C) garments", "answer: C", "the answer is C", "it is C", "\boxed{C}";
    - label and text: "the answer is sharing information (c)." (another option's text: wrong);
    - text alone: "garments", "the answer is garments".

    A label goes before a text. What follows "the answer is", "I choose" or a leading "No," goes
    before any other sentence. Where taste decides:

    - An option that is denied is not named: "not (A)", "A is wrong", "neither (A) nor (B)".
    - What follows "because" or "since" gives a reason and names nothing: "A since (B) is wrong".
    - Options that are listed, "1. four 2. five" or "A or B", are all named.
    - A number that begins a line is a label only where the line ends or its option's text follows:
      else it counts steps.
    """
    assert problem.answer is not None, f"{problem.problem_id}: no answer to grade against"
    if problem.task == "mc":
        return named_labels(problem.choices or (), completion) == {problem.answer}
    given = boxed(completion)
    return given is not None and same_value(problem.answer, given)
