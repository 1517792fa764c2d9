"""What answers show: an LLM that is too weak, faults of their form, and hints on what to change."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.prompts import PromptKind
from citer.data.tasks import find_task, task_label
from citer.evaluation.choice import upper_bound
from citer.evaluation.sweep import Result
from citer.pairs.probe import Reply, by_task, graded

ABOVE_CHANCE = 0.1  # of the floor, for questions with options
CONFIDENCE = 0.95  # of a certain shortfall
SHARE = 0.25  # of the answers: a rarer fault is not mentioned
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# Roles and special tokens of the chat templates of common families, as a model writes them.
ROLE = re.compile(
    r"<\|[\w ]+\|>|</?s>|<</?SYS>>|\[/?INST\]|<(?:start|end)_of_turn>"
    r"|^(?:user|assistant|system|human)\s*:?\s*$|^(?:user|assistant|system|human):",
    re.IGNORECASE | re.MULTILINE,
)


class Shortfall(NamedTuple):
    """A task of which the LLM answers too few questions right."""

    task: str
    questions: int
    right: float  # share of questions, like `floor`
    floor: float

    @property
    def is_certain(self) -> bool:
        """Whether the upper bound of the share at confidence CONFIDENCE is below the floor."""
        return upper_bound(self.right * self.questions, self.questions, 1 - CONFIDENCE) < self.floor

    @property
    def doubt(self) -> str:
        """Warn of a shortfall that is not certain."""
        return f"too few questions to be sure, but {self} (evaluate.llm_floor)"

    def __str__(self) -> str:
        questions = f"{self.questions} {task_label(self.task)} questions of validation"
        return f"LLM right on {self.right:.1%} of {questions}, expected at least {self.floor:.1%}"


def shortfalls(results: Iterable[Result | Reply], llm_floor: float) -> Iterator[Shortfall]:
    """Yield the tasks of which the LLM answers too few of the graded questions right."""
    graded = (result for result in results if result.correct is not None)
    by_task = sorted(graded, key=lambda result: result.problem.task)
    for task, group in groupby(by_task, key=lambda result: result.problem.task):
        answered = list(group)
        right = fmean(result.correct is True for result in answered)
        least = floor([result.problem for result in answered], llm_floor)
        if right < least:
            yield Shortfall(task, len(answered), right, least)


def floor(problems: Sequence[Problem], llm_floor: float) -> float:
    """Return the least share of right answers for a task.

    This is `llm_floor`. For questions with options it is also at least 0.1 above chance, the mean
    of 1 / number of options. 0 turns both off.
    """
    options = [len(problem.choices) for problem in problems if problem.choices]
    if not (llm_floor and options):
        return llm_floor
    return max(llm_floor, fmean(1 / count for count in options) + ABOVE_CHANCE)


class Fault(NamedTuple):
    """A fault of a wrong answer: how to see it, and what to say after "5 of 20 answers"."""

    has: Callable[[Reply], bool]
    says: str
    share: float = SHARE


def reason_to_stop(llm: Sequence[Reply], llm_floor: float, prompt: PromptKind) -> str:
    """Name the tasks of which the LLM is certainly right too rarely, with the most likely hint.

    Returns "" if there is none.
    """
    certain = [short for short in shortfalls(llm, llm_floor) if short.is_certain]
    if not certain:
        return ""
    task = certain[0].task
    likely = (f"; {task_label(task)}: {hint}" for hint in hints(by_task(llm)[task], prompt))
    return f"{'; '.join(map(str, certain))} (evaluate.llm_floor){next(likely, '')}"


def warnings(
    slm: Sequence[Reply], llm: Sequence[Reply], llm_floor: float, prompt: PromptKind
) -> Iterator[str]:
    """Yield the hints for each task, and what makes routing doubtful but is no reason to stop."""
    short = {each.task: each for each in shortfalls(llm, llm_floor)}
    weak = by_task(slm)
    for task, replies in by_task(llm).items():
        yield from (f"{task_label(task)}: {hint}" for hint in hints(replies, prompt))
        if task in short and not short[task].is_certain:
            yield short[task].doubt
        slm_right = sum(reply.correct is True for reply in weak[task])
        llm_right = sum(reply.correct is True for reply in replies)
        if 0 < llm_right <= slm_right:
            right = f"{slm_right} of {len(graded(replies))} questions, the LLM on {llm_right}"
            yield f"{task_label(task)}: the SLM alone is right on {right}: routing cannot pay"


def hints(replies: Sequence[Reply], prompt: PromptKind) -> list[str]:
    """Say which faults enough of one task's answers have, and what to change.

    An answer that is not graded may have a fault that shows without it.
    """
    doubtful = [reply for reply in replies if not reply.correct]
    counts = [(fault, sum(map(fault.has, doubtful))) for fault in FAULTS]
    seen = [(fault, n) for fault, n in counts if n and n >= fault.share * len(replies)]
    wrong = graded(doubtful)
    if not seen and len(wrong) > len(replies) / 2:
        seen = [(WEAK, len(wrong))]
    task = replies[0].problem.task
    wider = find_task(task).wider
    other = f"the task {wider}, or " if wider else ""
    failure = next((reply.failure for reply in doubtful if reply.failure), "")
    words = {"task": task_label(task), "other": other, "form": FORM[prompt], "failure": failure}
    return [
        f"{count} of {len(replies)} answers {fault.says.format(**words)}" for fault, count in seen
    ]


def is_loop(reply: Reply) -> bool:
    """Whether the answer ends with the same tokens four times, at least 16 tokens together."""
    ids = reply.token_ids
    for period in range(1, len(ids) // 4 + 1):
        tail = ids[-max(4 * period, 16) :]
        if len(tail) >= 16 and tail[period:] == tail[:-period]:
            return True
    return False


def is_unread(reply: Reply) -> bool:
    """Whether the text holds the right answer, or the text of the right option, but was not read.

    Of a question with options, the grader may also have read several.
    """
    problem, read = reply.problem, reply.extracted
    right = [c.text for c in problem.choices or () if c.label == problem.answer]
    if problem.answer and not problem.choices:
        right = [problem.answer]
    if read and not (problem.choices and "," in read):
        return False
    asked = problem.question  # an answer may repeat it
    return any(_holds(reply.text, text) and not _holds(asked, text) for text in right)


def _holds(text: str, answer: str) -> bool:
    """Whether `answer` occurs in `text`, as a number if it is one, else as whole words."""
    text, answer = (THOUSANDS.sub("", each.strip("$% ")) for each in (text, answer))
    if NUMBER.fullmatch(answer):
        return float(answer) in {float(number) for number in NUMBER.findall(text)}
    return bool(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE))


# By pair.prompt: what to change if the form of the prompt may be at fault.
FORM: dict[PromptKind, str] = {
    "plain": "a chat model needs its chat template (pair.prompt: chat)",
    "chat": "look at the template's system prompt and variables (pair.chat)",
}
FAULTS = (
    Fault(lambda reply: reply.failure is not None, "made the grader of {task} fail: {failure}", 0),
    Fault(lambda reply: not reply.text.strip(), "are empty: {form}, or use another prompt"),
    Fault(
        lambda reply: bool(ROLE.search(reply.raw)),
        "contain a special token or the name of a chat role: {form}, or check eos_token_id in "
        "generation_config.json",
    ),
    Fault(is_loop, "repeat the same tokens at the end: {form}, or use another prompt"),
    Fault(
        lambda reply: reply.truncated and not is_loop(reply),
        "are cut off before EOS: {form}, check eos_token_id in generation_config.json, ask for "
        "shorter answers, or raise decode.max_new_tokens",
    ),
    Fault(
        is_unread,
        "hold the right answer, but not where the task {task} reads it: use {other}a prompt that "
        "asks for that form",
    ),
)
WEAK = Fault(
    lambda reply: True,
    "are wrong, and nothing is odd about their form: the LLM is too weak for these questions, or "
    "they need another prompt",
)
