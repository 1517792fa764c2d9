"""Find the options that the last statement of an answer names.

Every step takes time linear in the text, so no pattern may scan the same text twice.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

from citer.data.problems import Choice

LONGEST = 400  # characters; an option with a longer text is recognised by its label only
QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u3001\u3002", "''\"\",.")
WIDE = re.compile("[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]")  # no space follows them
MARKS = str.maketrans(dict.fromkeys("⟨⟩⟦⟧"))  # reserved: they mark mentions below

AGAIN = r"(?:no|wait|actually|correction|sorry|oops|scratch that|on second thoughts?)"
CUE = re.compile(
    r"\b(?P<cue>answers?|options?|choices?)\b(?P<colon>[ \"'*`]*:)?"
    r"|\b(?P<verb>is|are|be)\b|\bi(?:'d| would| will|'ll)? (?P<choose>choose|pick|select|go with)\b"
    rf"|^(?P<again>{AGAIN})\b"
    r"|(?P<deny>\b(?:not|never|cannot)\b|n't\b)|(?P<end>[.:])"
)
QUESTION = re.compile(r".*\?[\"'*`)]*")
ASKED = re.compile(r"is (?:it|this|that|the (?:\w+ )?(?:answer|option|choice))[ \"'*`]+[⟨⟦]")
TAG = re.compile(r"<(/?)(?:final[_ ]?)?(?:answer|choice|option)>")
SENTENCE = re.compile(r"(?<=[.!?]) |\n")
ITEM = re.compile(r"⟦\w⟧ ⟨\w+⟩")

# Context of a label without brackets: before it, between several labels, and after them.
DECOR = r"[ \"'*`]{0,3}"
START = r"(?:(?<![^\n])|(?<=[.!?;] ))"
LIKELY = (
    r"(?:probably|likely|possibly|presumably|perhaps|maybe|clearly|obviously|certainly|definitely"
    r"|surely|simply|apparently|really|actually|indeed|necessarily)"
)
SAID = (
    r"(?:\b(?:answer|option|choice)s?(?: is| are| [a-z']{3,6}(?: not)? be)?[\"'*` ]{0,3}(?::|\b)"
    r"|\b(?:it|this|that)(?:'s| is| must be| should be|'d be| would be) "
    r"|\bi(?:'d| would| will|'ll)? (?:choose|pick|select|go with) "
    rf"|\b(?:so|therefore|thus|hence),? |\b(?:but|not|{LIKELY}) |\{{"
    rf"|{START}{AGAIN}[,.:!]* |\bleav(?:es|ing)(?: us with| only| just)? "
    r"|\b(?:antwort|lösung|réponse|respuesta|risposta|resposta)(?: \w+)?"
    r"(?: (?:ist|est|es|è|é)(?: die| la| a)?|:)(?!\w)|答案[是为:]|选择?|(?:正解|答え)は)"
)
AND = r"(?:, ?(?:and |or )?|/| & | and | or )(?:maybe |perhaps |possibly |also )?[\"'*`]{0,2}"
END = (
    r"(?=\Z|\n|[.,;:!?\"'*`)\]}](?!\w)|(?<=\)) ⟨"
    r"| (?:and|are|as|because|but|instead|is|isn't|not|or|rather|since)\b|です)"
)
STEP = r"(?=[.,;:!?\"'*`)]{0,3}(?:\Z|\n)| (?:and|because|or|since|is)\b|,(?!\w))"
NAMED_TWICE = re.compile(r"(⟦\w⟧)[.:] (?=⟨\w+⟩[.,;!?]?(?:\n|\Z))")
# "not (A)" and "A is wrong" deny an option; "one does not drink from the toilet (d)" does not.
BEFORE_MENTION = (
    r"(?= ?(?:(?:a|an|answer|at|be|choose|either|for|in|it's|it is|option|pick|select|the|to"
    rf"|{LIKELY}) ){{0,3}}[\"'*`]{{0,2}}[⟨⟦])"
)
DENIAL = (
    r"(?:n't|\b(?:not|never|neither|nor|cannot"
    r"|(?:all|any|every)\w*(?: options| choices| of them)? but"
    r"|rul(?:es?|ed|ing) out|cross(?:es|ed|ing)? out|(?:eliminat|exclud|reject|discard|dismiss)\w*"
    r"|doubt(?: that)?(?: it's| it is)?|unlikely|hardly"
    r"|nicht|n'est pas|no es|non è|não é)|不[是选]|并非)"
)
OTHER = r"\b(?:unlike|except|other than|apart from|rather than|instead of)"
TOKEN = re.compile(
    r"(?:⟨(?P<before>\w+)⟩[ \"'*`]{0,4})?⟦(?P<label>\w)⟧(?:[:\"'*`]{0,4} ⟨(?P<after>\w+)⟩)?"
    r"|⟨(?P<text>\w+)⟩"
    rf"|(?P<denial>{DENIAL}{BEFORE_MENTION})|(?P<other>{OTHER}{BEFORE_MENTION})"
    rf"|(?P<wrong>\b(?:is|are|was|were|be|seems?|looks?)(?: {LIKELY})?(?: wrong| incorrect| false"
    r"|(?: unlikely| impossible| excluded| eliminated| rejected"
    rf"|(?: ruled| crossed)? out(?=[.,;!]|\Z))(?!{BEFORE_MENTION})"
    r"|(?: not|n't)(?: right| correct| it| the answer|(?=[.,;!]|\Z)))"
    r"|\bcan(?:not|'t| not) be(?: right| correct| true| it)?(?=[.,;!]|\Z)"
    r"|\bdo(?:es)?(?: not|n't) (?:fit|work|apply|make sense)|\bmakes? no sense)"
    r"|(?P<reason>\b(?:because|since)\b)"
    r"|(?P<stop>[;:.!?]|,(?! ?(?:and |or |nor )?[\"'*`]{0,2}[⟨⟦])|\bbut\b|\bit is\b|\bit's\b)"
    r"|(?P<comma>,)"
)


def named_labels(choices: Iterable[Choice], completion: str) -> set[str]:
    """Return the labels of the options that the last statement of an answer names."""
    sentences = _asserted(_sentences(_marked(tuple(choices), completion)))
    stated = [text for text in map(_stated, sentences) if text]
    last = next((sentence for sentence in reversed(sentences) if "⟦" in sentence), "")
    denied = set(re.findall(r"⟦(\w)⟧", last)) - _by_label(last)  # "It is A. No, it is not A."
    readers: tuple[Callable[[str], set[str]], ...] = (_by_label, _by_text)
    for read in readers:
        for statement in (*reversed(stated), *reversed(sentences)):
            if labels := read(statement):
                return labels - denied
    return set()


def _sentences(marked: str) -> list[str]:
    """Split into sentences. Consecutive lines of the form "A. text" are one sentence."""
    sentences: list[list[str]] = []
    for sentence in SENTENCE.split(marked):
        if sentences and ITEM.match(sentence) and ITEM.match(sentences[-1][-1]):
            sentences[-1].append(sentence)
        else:
            sentences.append([sentence])
    return [" ".join(parts) for parts in sentences]


def _asserted(sentences: list[str]) -> list[str]:
    """Leave questions out, unless the next sentence says yes: "Is it A? Yes."."""
    return [
        sentence
        for sentence, after in zip(sentences, [*sentences[1:], ""], strict=True)
        if not QUESTION.fullmatch(sentence) or (ASKED.match(sentence) and after.startswith("yes"))
    ]


def _stated(sentence: str) -> str:
    """Return the text after the last "the answer is", "option:" or "I choose"; "" without one."""
    start, open_cue = len(sentence), False
    for match in CUE.finditer(sentence):
        if match["colon"] or match["choose"] or match["again"] or (match["verb"] and open_cue):
            start, open_cue = match.end(), False
        elif match["deny"] and open_cue:
            start, open_cue = match.start(), False
        else:
            open_cue = bool(match["cue"]) or (open_cue and not match["end"])
    return sentence[start:]


def _by_label(statement: str) -> set[str]:
    """Return the options that are named by label.

    A label next to another option's text names both, unless the statement also has the label's own
    text.
    """
    mentions, texts = _mentions(statement), _by_text(statement)
    named = set()
    for mention in mentions:
        if label := mention["label"]:
            adjacent = (mention["before"] or "") + (mention["after"] or "")
            named |= {label} if label in texts else {label, *adjacent}
    return named


def _by_text(statement: str) -> set[str]:
    groups = ("before", "after", "text")
    texts = (text for match in _mentions(statement) for text in match.group(*groups))
    return set("".join(filter(None, texts)))


def _mentions(statement: str) -> list[re.Match[str]]:
    """Return the mentions of options that are not denied, up to the word "because" or "since"."""
    kept: list[re.Match[str]] = []
    clause: list[re.Match[str]] = []
    denying = ""
    for token in TOKEN.finditer(statement):
        match token.lastgroup:
            case "denial" | "other" as denying:
                pass
            case "comma":
                if denying == "other" and not kept + clause:  # "Unlike Rome, Paris"
                    denying = ""
            case "wrong":
                clause = []
            case "stop":
                kept.extend(clause)
                clause, denying = [], ""
            case "reason":
                if kept or clause:
                    break
            case _ if not denying:
                clause.append(token)
    return kept + clause


def _marked(choices: tuple[Choice, ...], completion: str) -> str:
    """Return lower-case text with each mention marked: `⟦C⟧` by label, `⟨C⟩` by text."""
    labels = "".join(choice.label for choice in choices).lower()
    owners: dict[str, str] = {}
    patterns: dict[str, str] = {}
    for choice in choices:
        text = _plain(choice.text)
        line = text.replace("\n", " ")
        owners[line] = owners.get(line, "") + choice.label
        patterns[line] = re.escape(text).replace("\\\n", "[ \n]")
    # An option whose text is itself a label is recognised by label only. Longer texts match first.
    known = {text for text in owners if text and len(text) <= LONGEST} - set(labels)
    texts = "|".join(patterns[text] for text in sorted(known, key=len, reverse=True)) or "(?!)"
    named = re.compile(rf"(?<!\w)({texts})(?!\w)")
    marked = named.sub(
        lambda match: "⟨" + owners[match[1].replace("\n", " ")] + "⟩", _plain(completion)
    )
    return _with_labels(marked, labels)


def _with_labels(text: str, labels: str) -> str:
    bracketed, item, bare = _label_forms(labels)
    text = bracketed.sub(lambda match: f"⟦{match['label'].upper()}⟧", text)
    text = item.sub(_item, text)
    text = bare.sub(lambda match: match["before"] + _each(labels, match["labels"]), text)
    return NAMED_TWICE.sub(r"\1 ", text)


def _item(match: re.Match[str]) -> str:
    """Mark "2. five" if "five" is option 2. Before any other text, the number counts steps."""
    label = match["label"].upper()
    return f"⟦{label}⟧ ⟨{match['owners']}⟩" if label in match["owners"] else match.group()


def _each(labels: str, text: str) -> str:
    return re.sub(rf"(?<!\w)[{labels}](?!\w)\)?", lambda match: f"⟦{match[0][0].upper()}⟧", text)


@lru_cache
def _label_forms(labels: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    label = f"[{labels}]"
    bracketed = rf"[(\[{{] ?(?P<label>{label}) ?[)\]}}]"
    item = rf"(?<!\w)(?P<label>{label})[.):] ⟨(?P<owners>\w+)⟩"
    run = rf"(?P<labels>{label}(?:{AND}{label}(?!\w))*\)?)"
    first = STEP if labels.isdigit() else END
    bare = rf"(?P<before>(?:(?P<start>{START})|{SAID}){DECOR}){run}(?(start){first}|{END})"
    return re.compile(bracketed), re.compile(item), re.compile(bare)


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", WIDE.sub(r"\g<0> ", text)).lower()
    text = TAG.sub(lambda tag: "\n" if tag[1] else "\nanswer: ", text.translate(QUOTES | MARKS))
    text = re.sub(r"(?<![^\n])#+ ", "", text)  # of a heading
    return re.sub(r" ?\n[ \n]*", "\n", re.sub(r"[^\S\n]+", " ", text)).strip()
