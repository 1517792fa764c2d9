"""Everything that can be wrong in the file of a user's task is said in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from citer.data.importing import parse_row, recognised
from citer.data.tasks import find_task, known_task, task_label
from citer.data.tasks.own import FORM
from citer.data.tasks.rows import RowError
from citer.data.tasks.task import GraderError
from citer.errors import InputError
from tests.tasks import prompt_text

NAME = "python:data/own/t.py:Own"
METHODS = "expected problem(row), prompt(problem)"


def edited(write_task: Callable[..., str], old: str, new: str) -> str:
    """Write a task that grades each answer as right, with one text replaced."""
    name, file = write_task("return 1"), Path("data/own/t.py")
    source = file.read_text()
    assert old in source
    file.write_text(source.replace(old, new))
    return name


@pytest.mark.parametrize(
    "name",
    [
        "python:t.py:Own",
        "python:data/own/../t.py:Own",
        "python:/data/own/t.py:Own",
        "python:data/own/t.txt:Own",
        "python:data/own/t.py",
        "python:data/own/t.py:",
        "python:data/own/t.py:Own()",
        "python:",
        "pyhton:data/own/t.py:Own",
    ],
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{FORM}$") as caught:
        known_task(name)
    assert str(caught.value).startswith(f"{name!r}: expected ")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("class Own", "class Onw", "no class Own; it has Onw"),
        ("class Own:", "def Own(): pass\nclass Other:", "no class Own; it has Other"),
        ("def problem", "def row", f"Own has no method problem; {METHODS}"),
        ("def prompt", "prompt = 1\n    def other", f"Own has no method prompt; {METHODS}"),
        ("import os", "import os, no_such_module", "1: ModuleNotFoundError: No module named 'no_s"),
        ("class Own", "x = 1 / 0\nclass Own", "3: ZeroDivisionError: division by zero"),
        ("class Own", "sys.exit()\nclass Own", "3: SystemExit"),
        ("class Own:", "class Own", "3: SyntaxError: expected ':'"),
        ("class Own", "raise GeneratorExit\nclass Own", "3: GeneratorExit"),
        ("time_limit = 5", "def __init__(self): self.x", "4: AttributeError: 'Own' object has no"),
        ("time_limit = 5", "def __init__(self, x): 0", "TypeError: Own.__init__() missing 1"),
        ("= 5", "= 0", "Own.time_limit: 0; expected a number above 0, at most 3600"),
        ("= 5", "= True", "Own.time_limit: True; expected a number above 0"),
        ("time_limit = 5", "pass_share = 2", "Own.pass_share: 2; expected a number above 0, at"),
        ("time_limit = 5", "memory_limit = '1G'", "Own.memory_limit: '1G'; expected a number"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    write_task: Callable[..., str], old: str, new: str, complaint: str
) -> None:
    name = edited(write_task, old, new)
    with pytest.raises(InputError) as caught:
        find_task(name)
    message = str(caught.value)
    between = ":" if complaint[0].isdigit() else ": "
    assert message.startswith(f"data/own/t.py{between}{complaint}")
    assert "\n" not in message


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"^data/own/t\.py: no such file$"):
        find_task(NAME)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'return {"question"',
            'return 3, {"question"',
            "row: problem() returned (3, {'answer': 'y",
        ),
        ('"question":', '"qestion":', "row: problem() returned {'answer': 'yes', 'qest"),
        ('row["q"]', "row['x']", "row: data/own/t.py:7: KeyError: 'x', in problem(); expected a"),
        ("return {", "raise GeneratorExit\n        return {", "row: data/own/t.py:7: Gener"),
        ('row["q"]', "3", "question: problem() made 3; expected a text"),
        ('row.get("q")', "None", "answer: missing; expected a text that problem() makes"),
        ("problem.question +", "problem.x +", "prompt(): data/own/t.py:10: AttributeError"),
        ('problem.question + "?"', "''", f"prompt(): {NAME}: prompt() returned ''; expected a tex"),
        ('problem.question + "?"', "'\\ud83d'", "prompt(): '\\ud83d', half a character; expected"),
        ("return 1", "return 0", "reference: ends 'y'; expected a text that the grader reads as"),
        ("return 1", "return 0.5", "reference: ends 'y' (share 0.50); expected a text that"),
        ("return 1", "1 / 0", "reference: its grader failed: ZeroDivisionError: division by z"),
    ],
)
def test_a_wrong_row_is_refused_with_its_field(
    write_task: Callable[..., str], old: str, new: str, complaint: str
) -> None:
    name = edited(write_task, old, new)
    find_task(name)
    with pytest.raises(RowError) as caught:
        parse_row({"q": "yes", "r": "y"}, name, "reference")
    assert str(caught.value).startswith(complaint)
    assert str(caught.value).count("expected") == 1
    assert "\n" not in str(caught.value)


def test_a_row_becomes_a_problem_of_its_task(write_task: Callable[..., str]) -> None:
    name = write_task("return 1")
    problem = parse_row({"q": "  yes", "r": "  y\n"}, name, "reference")
    assert (problem.task, task_label(problem.task)) == (NAME, "Own")
    assert (problem.question, problem.answer, problem.reference) == ("  yes", "  yes", "  y\n")
    assert prompt_text(problem) == find_task(name).message_text(problem) == "  yes?"
    with pytest.raises(RowError, match="reference: missing"):
        parse_row({"q": "yes"}, name, "reference")


def test_a_task_may_write_another_turn_for_a_chat(write_task: Callable[..., str]) -> None:
    chat = "def message(self, problem): return f'Please: {problem.question}'"
    problem = parse_row({"q": "yes"}, write_task("return 1", chat), "question")
    task = find_task(problem.task)
    assert (task.prompt_text(problem), task.message_text(problem)) == ("yes?", "Please: yes")


def test_the_import_of_a_task_leaves_the_folder_as_it_was(write_task: Callable[..., str]) -> None:
    problem = parse_row({"q": "yes"}, write_task("return 1"), "question")
    assert find_task(problem.task).grade(problem, "") == 1
    assert [path.name for path in Path("data/own").rglob("*")] == ["t.py"]


def test_the_digest_of_a_task_is_that_of_its_file(write_task: Callable[..., str]) -> None:
    from citer.data.tasks.own import own_task

    digests = []
    for old, new in (("return 1", "return 1"), ("return 1", "return 1"), ("return 1", "return 0")):
        own_task.cache_clear()
        digests.append(find_task(edited(write_task, old, new)).digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_class_reads_messages_of_its_rows_itself(write_task: Callable[..., str]) -> None:
    turns = [{"role": "tool", "content": "3", "name": "sum"}, {"role": "assistant"}]
    row = {"q": "yes", "messages": turns}
    task = write_task("return 1")
    assert recognised(row, [task]).task == task
    assert parse_row(row, task, "answer").messages is None


def same(task: str, one: str, other: str) -> bool:
    """Return whether two completions give the same answer to the question "?"."""
    return find_task(task).same(parse_row({"q": "?"}, task, "question"), one, other)


def test_a_task_compares_words_unless_it_has_a_method(write_task: Callable[..., str]) -> None:
    task = write_task("return 1")
    assert same(task, "a b", "a  b")
    assert not same(task, "a", "A")


@pytest.mark.parametrize(
    ("returned", "expected"),
    [("one.lower() == other.lower()", True), ("problem.question == one", False), ("0.5", False)],
)
def test_a_method_decides_what_is_the_same(
    write_task: Callable[..., str], returned: str, expected: bool
) -> None:
    method = f"def same(self, problem, one, other): return {returned}"
    assert same(write_task("return 1", method), "a", "A") is expected


@pytest.mark.parametrize(
    ("returned", "failure"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("'yes'", r"same\(\) returned 'yes'"),
        ("exit()", "SystemExit"),
    ],
)
def test_a_method_that_says_what_is_the_same_may_fail(
    write_task: Callable[..., str], returned: str, failure: str
) -> None:
    method = f"def same(self, problem, one, other): return {returned}"
    with pytest.raises(GraderError, match=failure):
        same(write_task("return 1", method), "a", "a")
