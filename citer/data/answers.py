"""The one grader: rollouts, evaluation and the check of every reference ask it alone."""

import re
import threading
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

import math_verify

from citer.data.problems import Choice, Problem

BOX = "\\boxed{"
TIMEOUT_SECONDS = 5
NUMBER = re.compile(r"-?(\d{1,3}(,\d{3})+|\d{1,40})?(\.\d{1,40})?(/\d{1,40})?")
DECORATION = re.compile(r"\\?[$%]|\\[!,]|^\s+|\.?\s*$")

STATED = re.compile(
    r".*\b(answer|option|choice)s?(\b[^.:]*?\b(is|are|be)\b|\s*:)(?P<said>.*)", re.DOTALL
)
BESIDE_LABEL = re.compile(r"(?:⟨(\w+)⟩[\s\"'*]*)?\((\w)\)(?:[:.]?\s+⟨(\w+)⟩)?")
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def grade(problem: Problem, completion: str) -> bool:
    """Whether `completion` (what follows the prompt, never the prompt) answers `problem` right.

    math: what the last `\\boxed{}` holds equals the answer: as a string, as an exact number
    (thousands commas, dollar and percent signs aside), or mathematically (math-verify).

    mc: the last statement names the right option and no other, whatever the case, by

    - label: "(C)", "C.", "C) garments", "answer: C", "the answer is C", "option C", "\\boxed{C}";
    - label and text: "the answer is sharing information (c)." (another option's text: wrong);
    - text alone: "garments", "the answer is garments".

    A label goes before a text; what follows "the answer is" goes before any other sentence.
    """
    assert problem.answer is not None, f"{problem.problem_id}: no answer to grade against"
    if problem.task == "mc":
        return named_labels(problem.choices or (), completion) == {problem.answer}
    given = boxed(completion)
    return given is not None and same_value(problem.answer, given)


def boxed(text: str) -> str | None:
    """What the last `\\boxed{}` holds; None if there is none or its braces do not balance."""
    start = text.rfind(BOX)
    if start < 0:
        return None
    inside = text[start + len(BOX) :]
    depth = 1
    for token in re.finditer(r"\\.|[{}]", inside):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return inside[: token.start()].strip()
    return None


@lru_cache(maxsize=1 << 16)
def same_value(answer: str, given: str) -> bool:
    """Whether two LaTeX answers are one value; two plain numbers are compared exactly."""
    if answer == given:
        return True
    numbers = number(answer), number(given)
    if None not in numbers:
        return numbers[0] == numbers[1]
    # math-verify's timeouts are signals, which only the main thread can take.
    seconds = TIMEOUT_SECONDS if threading.current_thread() is threading.main_thread() else None
    gold, target = (
        math_verify.parse(f"{BOX}{text}}}", parsing_timeout=seconds) for text in (answer, given)
    )
    return math_verify.verify(gold, target, timeout_seconds=seconds)


def number(text: str) -> Fraction | None:
    """The exact value of a plain decimal or quotient; None for anything else."""
    plain = DECORATION.sub("", text).replace("{,}", ",")
    if not NUMBER.fullmatch(plain):
        return None
    try:
        return Fraction(plain.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None


def named_labels(choices: Iterable[Choice], completion: str) -> set[str]:
    """Labels of the options that the last statement of a multiple-choice answer names."""
    sentences = SENTENCE.split(_marked(tuple(choices), completion))
    stated = [match["said"] for match in map(STATED.match, sentences) if match]
    readers: tuple[Callable[[str], set[str]], ...] = (_by_label, _by_text)
    for read in readers:
        for statement in (*reversed(stated), *reversed(sentences)):
            if labels := read(statement):
                return labels
    return set()


def _marked(choices: tuple[Choice, ...], completion: str) -> str:
    """Lower-case text where every mention is `(C)`, by label, or `⟨C⟩`, by an option's text."""
    labels = "".join(choice.label for choice in choices).lower()
    owners: dict[str, str] = {}
    for choice in choices:
        text = _plain(choice.text)
        owners[text] = owners.get(text, "") + choice.label
    # A text that reads as a label is known by its label alone; the longest text goes first.
    texts = sorted(owners.keys() - set(labels), key=len, reverse=True)
    option = rf"(?<!\w)({'|'.join(map(re.escape, texts)) or '(?!)'})(?!\w)"
    marked = re.sub(option, lambda match: f"⟨{owners[match[1]]}⟩", _plain(completion))
    for form in _label_forms(labels):
        marked = form.sub(lambda match: f"{match['before']}({match['label'].upper()})", marked)
    return marked


@lru_cache
def _label_forms(labels: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    label = f"(?P<label>[{labels}])"
    bracketed = rf"(?P<before>)[(\[{{]\s*{label}\s*[)\]}}]"
    bare = (
        r"(?P<before>^|\b(?:answer|option|choice)(?:\s+is)?:?\s+)[\"'*]*"
        rf"{label}(?:\)|(?=\s*$|[.,;:*\"']|\s+(?:because|since|is)\b))"
    )
    return re.compile(bracketed), re.compile(bare, re.MULTILINE)


def _by_label(statement: str) -> set[str]:
    texts, named = _by_text(statement), set()
    for before, label, after in BESIDE_LABEL.findall(statement):
        named |= {label} if label in texts else {label, *before, *after}
    return named


def _by_text(statement: str) -> set[str]:
    return set("".join(re.findall(r"⟨(\w+)⟩", statement)))


def _plain(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text.lower().replace("\u2019", "'")).strip()
