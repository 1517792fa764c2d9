"""Where the LLM writes: by stretch of the answer, by kind of token, and token by token."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from citer.evaluation.metrics import share_interval
from citer.report.page.chart import TOP, Axis, Chart, x_axis, y_axis
from citer.report.page.words import percent
from citer.report.tokens import KINDS, STRETCHES, Decoded, Spoken, Token, Transcript

WIDTH, HEIGHT = 400, 240
ROW, FOOT, NAMES = 30, 40, 92  # pixels: of a kind, of the axis, of the kinds' names
# A token is coloured by its doubt, 1 - score: level 0 from the first score on, 1 from the second …
LEVELS = (0.999, 0.99, 0.95, 0.8, 0.5, 0.0)


def stretch_chart(transcript: Transcript) -> Chart:
    """Draw the LLM's share of the tokens in each tenth of an answer."""
    shares = _shares(transcript.spoken, "stretch")
    high = max(share_interval(*count)[1] for count in shares.values())
    x = x_axis("part of the answer", 0, STRETCHES, WIDTH, named=_tenths())
    y = y_axis("tokens written by the LLM", 0, high, HEIGHT, percent=True)
    chart = Chart(WIDTH, HEIGHT, x, y, "share of tokens by the LLM along the answer")
    for stretch, (by_llm, count) in shares.items():
        tip = _tip(f"tenth {stretch + 1} of the answer", by_llm, count)
        chart.bar(stretch + 0.12, stretch + 0.92, 0, by_llm / count, "ours", tip)
        low, high = share_interval(by_llm, count)
        chart.line([(stretch + 0.5, low), (stretch + 0.5, high)], "whisker")
    return chart


def _tenths() -> list[tuple[float, str]]:
    return [(0, "start"), (STRETCHES / 2, "middle"), (STRETCHES, "end")]


def kind_chart(transcript: Transcript) -> Chart:
    """Draw the LLM's share of the tokens of each kind."""
    shares = _shares(transcript.spoken, "kind")
    kinds = [kind for kind in KINDS if kind in shares]
    highest = max(share_interval(*count)[1] for count in shares.values())
    height = TOP + ROW * len(kinds) + FOOT
    x = x_axis("tokens written by the LLM", 0, highest, WIDTH, NAMES, percent=True)
    y = Axis("", -0.5, len(kinds) - 0.5, TOP, height - FOOT, named=[*enumerate(kinds)])
    chart = Chart(WIDTH, height, x, y, "share of tokens by the LLM by kind of token")
    for number, kind in enumerate(kinds):
        by_llm, count = shares[kind]
        chart.bar(
            0, by_llm / count, number + 0.28, number - 0.28, "ours", _tip(kind, *shares[kind])
        )
        low, high = share_interval(by_llm, count)
        chart.line([(low, number), (high, number)], "whisker")
    return chart


def _tip(name: str, by_llm: int, count: int) -> str:
    return f"{name}\nthe LLM wrote {by_llm:,} of {count:,} tokens: {percent(by_llm / count)}"


def _shares(spoken: Sequence[Spoken], name: str) -> dict[Any, tuple[int, int]]:
    """Add up the LLM's tokens and all tokens by a field of `Spoken`."""
    shares: dict[Any, tuple[int, int]] = {}
    for each in spoken:
        key = getattr(each, name)
        by_llm, count = shares.get(key, (0, 0))
        shares[key] = by_llm + each.llm_tokens, count + each.tokens
    return shares


class Shown(NamedTuple):
    """A token of the heat map: its text, its CSS classes and the text on hover.

    A space before a word is left uncoloured, since lines break there.
    """

    text: str
    look: str
    tip: str

    @property
    def word(self) -> str:
        return self.text.removeprefix(" ") or self.text

    @property
    def space(self) -> str:
        return self.text.removesuffix(self.word)


def shown(answer: Decoded) -> list[Shown]:
    """Return the tokens of an answer in reading order, rejected drafts first."""
    return [each for token in answer.tokens for each in (*_rejected(token), _written(token))]


def _rejected(token: Token) -> list[Shown]:
    first = f"taken back by an audit; the LLM wrote “{visible(token.text)}”"
    tips = [first, *("dropped after the rejected draft" for _ in token.rejected)]
    return [
        Shown(visible(text), "gone", tip) for text, tip in zip(token.rejected, tips, strict=False)
    ]


def _written(token: Token) -> Shown:
    score = "the SLM did not run" if token.score is None else f"score {token.score:.4g}"
    looks = ["none" if token.score is None else f"d{level(token.score)}"]
    looks += ["llm"] * token.by_llm + ["differs"] * (token.slm != token.llm)
    writer = "LLM" if token.by_llm else "SLM"
    both = f"SLM: “{visible(token.slm)}” · LLM: “{visible(token.llm)}”"
    return Shown(visible(token.text), " ".join(looks), f"written by the {writer} · {score}\n{both}")


def level(score: float) -> int:
    """Return the colour of a score, from 0 (certain) on."""
    return next(number for number, least in enumerate(LEVELS) if score >= least)


def visible(text: str) -> str:
    """Show line breaks as a sign, so that a token is never empty."""
    return text.replace("\n", "⏎") or "∅"
