"""A transcript by hand: two answers of a few tokens."""

from citer.report.tokens import Decoded, Token, Transcript, count_spoken


def token(text: str, kind: str = "word", by: str = "slm", **changes: object) -> Token:
    fields = {"score": 0.97, "slm": text, "llm": text, "rejected": []} | changes
    return Token(text, kind, by, **fields)


HOSTILE = "<script>alert(1)</script>"
ANSWERS = [
    Decoded(
        problem_id="one",
        question=f"How many? {HOSTILE}",
        choices=[],
        expected="7",
        correct=True,
        truncated=False,
        tokens=[
            token("So"),
            token(HOSTILE, "symbol", slm=HOSTILE, llm='" onload="x'),
            token(" 7", "number", by="llm", score=0.4567, slm=" 6", rejected=[" 6", "!"]),
            token("\n", "space", by="llm", score=None),
        ],
    ),
    Decoded("two", "Which?", ["A) this", "B) that"], None, False, True, [token("A")]),
]


def transcript(rule: str = "risk 0.9 audit 0.1", answers: list[Decoded] = ANSWERS) -> Transcript:
    return Transcript(rule, len(answers), count_spoken(answers), answers)
