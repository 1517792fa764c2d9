from citer.data.problems import Choice, problem_key, question_key, read_problems, write_problems
from tests import tiny

CHOICES = (Choice("A", "yes"), Choice("B", "no"))


def test_case_and_white_space_do_not_change_a_question():
    assert question_key("Is  it\n so? ") == question_key("is it so?")
    assert question_key("Is it so?") != question_key("Is it so")


def test_the_id_of_a_problem_depends_on_task_question_and_choices():
    key = problem_key("mc", "Is it so?", CHOICES)
    assert key == problem_key("mc", "is it  so?", CHOICES)
    others = {
        problem_key("math", "Is it so?", None),
        problem_key("mc", "Is it?", CHOICES),
        problem_key("mc", "Is it so?", CHOICES[::-1]),
        problem_key("mc", "Is it so?", CHOICES[:1]),
    }
    assert len(others | {key}) == 5


def test_problems_round_trip_through_a_file(tmp_path):
    problems = [tiny.MATH, tiny.MC]
    write_problems(tmp_path / "problems.parquet", problems, {"seed": 1})
    assert read_problems(tmp_path / "problems.parquet") == problems
