"""A transcript by hand: two answers of a few tokens."""

from citer.report.tokens import Decoded, Token, Transcript, count_spoken


def token(text: str, kind: str = "word", by_llm: bool = False, **changes: object) -> Token:
    fields = {"score": 0.97, "slm": text, "llm": text, "rejected": []} | changes
    return Token(text, kind, by_llm, **fields)


HOSTILE = "<script>alert(1)</script>"
ANSWERS = [
    Decoded(
        problem_id="one",
        task="math",
        question=f"How many? {HOSTILE}",
        choices=[],
        expected="7",
        correct=True,
        truncated=False,
        tokens=[
            token("So"),
            token(HOSTILE, "symbol", slm=HOSTILE, llm='" onload="x'),
            token(" 7", "number", by_llm=True, score=0.4567, slm=" 6", rejected=[" 6", "!"]),
            token("\n", "space", by_llm=True, score=None),
        ],
    ),
    Decoded("two", "mc", "Which?", ["A) this", "B) that"], None, False, True, [token("A")]),
]


def transcript(rule: str = "risk 0.9 audit 0.1", answers: list[Decoded] = ANSWERS) -> Transcript:
    return Transcript("audited", rule, len(answers), count_spoken(answers), answers)
