"""Answers of the deployed rule, token by token: the file `tokens.json`."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["word", "number", "punctuation", "symbol", "space", "EOS"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CATEGORIES: dict[str, Kind] = {"N": "number", "P": "punctuation", "S": "symbol"}  # of Unicode
STRETCHES = 10  # equal parts of an answer, over which `Spoken` counts


@dataclass(frozen=True)
class Token:
    """A token of an answer, as text.

    `by` is who wrote it: `llm`, `slm` or `lookup`. `score` is that of the draft, or None without
    one. `slm` and `llm` are the tokens that the models choose here, after the same tokens.
    `rejected` are drafts from here on that an audit rejected, the first of which stood here.
    """

    text: str
    kind: Kind
    by: str
    score: float | None
    slm: str
    llm: str
    rejected: list[str]


@dataclass(frozen=True)
class Decoded:
    """A test question with its routed answer. `expected` is None if the right answer is unknown."""

    problem_id: str
    question: str
    choices: list[str]
    expected: str | None
    correct: bool
    truncated: bool
    tokens: list[Token]


@dataclass(frozen=True)
class Spoken:
    """Tokens of one kind in one stretch of all answers (0 is the first), and those by the LLM."""

    stretch: int
    kind: Kind
    tokens: int
    llm_tokens: int


@dataclass(frozen=True)
class Transcript:
    """What the deployed rule wrote on some test questions.

    `spoken` counts the tokens of `questions` answers, of which `answers` has the first few.
    """

    rule: str
    questions: int
    spoken: list[Spoken]
    answers: list[Decoded]


def kind_of(text: str) -> Kind:
    """Return the kind of a token that is no EOS, by its first character that is no space."""
    bare = text.strip()
    if not bare:
        return "space"
    return CATEGORIES.get(unicodedata.category(bare[0])[0], "word")


def count_spoken(answers: Iterable[Decoded]) -> list[Spoken]:
    """Count the tokens of answers by stretch and kind, where there are any."""
    counts: dict[tuple[int, Kind], list[int]] = {}
    for answer in answers:
        for position, token in enumerate(answer.tokens):
            stretch = STRETCHES * position // len(answer.tokens)
            count = counts.setdefault((stretch, token.kind), [0, 0])
            count[0] += 1
            count[1] += token.by == "llm"
    return [Spoken(*place, *counts[place]) for place in sorted(counts)]
