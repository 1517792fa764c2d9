"""Find the options that an answer names.

Every step takes time linear in the text, so no pattern may scan the same text twice.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from citer.data.problems import Choice

LONGEST = 400  # characters; an option with a longer text is recognised by its label only
# Bold type and quotes are dropped, and so are the brackets that mark mentions below.
DROPPED = str.maketrans({**dict.fromkeys('*`"\u201c\u201d⟨⟩⟦⟧', ""), "\u2018": "'", "\u2019": "'"})

SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
STATED = re.compile(
    r"\b(?:answer|option|choice)s?\b[^.:⟦⟨]{0,40}?(?:\b(?:is|are|be)\b|[:>])"
    r"|\bi(?:'d| would| will|'ll)? (?:choose|pick|select|go with)\b"
    r"|^(?:no|wait|actually|correction|sorry)\b"
)
REASON = re.compile(r"\b(?:because|since)\b")
# ⟦C⟧ is a mention by label, ⟨C⟩ by text.
BY_LABEL = re.compile(r"(?:⟨(\w+)⟩ {0,2})?⟦(\w)⟧(?: {0,2}⟨(\w+)⟩)?")
LABEL, TEXT = re.compile(r"⟦(\w)⟧"), re.compile(r"⟨(\w+)⟩")
ANY = r"(?:⟦\w⟧|⟨\w+⟩)(?: {0,2}(?:⟦\w⟧|⟨\w+⟩))?"
DENIED = re.compile(
    r"(?:\b(?:not|neither|nor|cannot|except|unlike)|n't)"
    rf"(?: (?:the|an?|be|is|it|option|answer|choose|either|to|\w+ly))* {ANY}(?: or {ANY})*"
    rf"|{ANY}(?: (?:is|are|was|does|can|could))?"
    r"(?: not\b|n't\b| (?:\w+ )?(?:wrong|incorrect|false|ruled out)\b)"
)


def named_labels(choices: Iterable[Choice], completion: str) -> set[str]:
    """Return the labels of the options that an answer names (see `MultipleChoice`)."""
    found: list[tuple[str, str, set[str]]] = []  # the last sentence first; denied there or later
    denied: set[str] = set()
    for sentence in reversed(SENTENCE.split(_marked(tuple(choices), completion))):
        if not sentence.rstrip("') ").endswith("?"):  # a question names nothing
            denied = denied.union(*(LABEL.findall(part) for part in DENIED.findall(sentence)))
            asserted = DENIED.sub(" ", sentence)
            found.append((asserted, _stated(asserted), denied))
    tries = [(_by_label, stated, denied) for _, stated, denied in found]
    for asserted, stated, denied in found:  # the labels of an earlier sentence may list the options
        tries += [(_by_text, stated, denied), (_by_label, asserted, denied)]
    tries += [(_by_text, asserted, denied) for asserted, _, denied in found]
    return next(filter(None, (read(text) - denied for read, text, denied in tries)), set())


def _stated(sentence: str) -> str:
    """Return the text after the last "the answer is", "option:" or "I choose"; "" without one.

    It ends before the word "because" or "since".
    """
    end = max((match.end() for match in STATED.finditer(sentence)), default=len(sentence))
    return REASON.split(sentence[end:], maxsplit=1)[0]


def _by_label(statement: str) -> set[str]:
    """Return the options that are named by label.

    A label beside another option's text names both, unless the statement has the label's own text.
    """
    texts, named = _by_text(statement), set[str]()
    for before, label, after in BY_LABEL.findall(statement):
        named |= {label} if label in texts else {label, *before, *after}
    return named


def _by_text(statement: str) -> set[str]:
    return set("".join(TEXT.findall(statement)))


def _marked(choices: tuple[Choice, ...], completion: str) -> str:
    """Return lower-case text with each mention marked: `⟦C⟧` by label, `⟨C⟩` by text."""
    labels = "".join(choice.label for choice in choices).lower()
    owners: dict[str, str] = {}
    for choice in choices:
        text = " ".join(_plain(choice.text).split())
        owners[text] = owners.get(text, "") + choice.label
    # An option whose text is itself a label is recognised by label only. Longer texts match first.
    known = {text for text in owners if text and len(text) <= LONGEST} - set(labels)
    spaced = (r"\s".join(map(re.escape, text.split())) for text in sorted(known, key=len)[::-1])
    named = re.compile(rf"(?<!\w)({'|'.join(spaced) or '(?!)'})(?!\w)")
    text = named.sub(lambda match: f"⟨{owners[' '.join(match[0].split())]}⟩", _plain(completion))
    for form in _label_forms(labels):
        text = form.sub(lambda match: match["before"] + _each(labels, match["labels"]), text)
    return text


def _each(labels: str, text: str) -> str:
    return re.sub(rf"\b[{labels}]\b", lambda match: f"⟦{match[0].upper()}⟧", text)


@lru_cache
def _label_forms(labels: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns of labels in brackets, at the start of a line, and after a word."""
    label, end = f"[{labels}]", r"(?=[.,;:!?)\]}<]|\s*$| (?:is|and|or|as|because|since|but)\b)"
    run = rf"{label}(?:(?:, ?|,? (?:or|and) | ?/ ?){label}\b)*"
    item = r"[.):](?= ⟨)" if labels.isdigit() else r"[.):](?!\w)"  # "2." may count a step
    return (
        re.compile(rf"(?P<before>)[(\[{{] ?(?P<labels>{label}) ?[)\]}}]"),
        re.compile(
            rf"^(?P<before>[^\w\n⟦⟨]*)(?P<labels>{label})(?:{item}|(?=[^\w\n⟦⟨]*$| is\b))", re.M
        ),
        re.compile(
            r"(?P<before>\b(?:answer|option|choice|choose|pick|select|it|so|therefore|thus|hence"
            r"|conclusion)s?,?"
            r"(?: (?:it|is|must|should|would|could|be|option|most|\w+ly)){0,6}(?: ?[:>])?\s*)"
            rf"(?P<labels>{run}){end}",
            re.M,
        ),
        re.compile(
            rf"(?P<before>)\b(?P<labels>{label})"
            r"(?= is (?:the )?(?:most )?(?:correct|right|best|suitable|appropriate)\b)"
        ),
    )


def _plain(text: str) -> str:
    """Return lower-case text without bold type, quotes and closing tags, with single spaces."""
    text = unicodedata.normalize("NFKC", text).lower().translate(DROPPED)
    text = re.sub(r"</\w+>", " ", text)
    return re.sub(r" ?\n[ \n]*", "\n", re.sub(r"[^\S\n]+", " ", text)).strip()
