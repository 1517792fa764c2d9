"""No built-in grader takes long for a long completion.

A grader that takes more than linear time would need minutes for the longer texts below.
"""

import pytest

from citer.data.importing import parse_row
from citer.data.tasks import TASKS
from citer.data.tasks.grading import assess

LONG = 100_000  # characters
PIECES = [
    *("1", "a", "\n", "{", "[", "\\", "1 ", "1,000", "1.0.", "\\boxed{", "\\frac1 ", "A or "),
    *("_", "**", " *a", "a_ ", "1,000,", "```", "100 ", "1 000 ", "3 million ", "million "),
    *("2\\times 10^{3}", "A is the most "),
    *('{"', '{"a":', "[]", "```json\n1\n```\n", "(A) ", "the answer is not (A) because "),
]


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("task", [name for name in TASKS if name != "open"])  # no grader
def test_a_grader_ends_on_a_long_completion(task: str, piece: str) -> None:
    problem = parse_row(TASKS[task].example, task, "reference")
    text = piece * (LONG // len(piece))
    for completion in (f"{text}!", f"\\boxed{{{text}}}"):
        assert 0 <= assess(problem, completion).share <= 1
