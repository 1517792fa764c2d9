"""The page at `/`: one file that asks the public API. It loads nothing else.

Without keys, only this machine can ask, so the page then offers questions of the project. A client
with a key may be anybody, and gets none.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from html import escape
from pathlib import Path

from fastapi.responses import HTMLResponse

from citer.data.problems import read_problems
from citer.errors import InputError

FILE = Path(__file__).with_name("page.html")
OFFERED = 20  # questions


def make_page(questions: Sequence[str]) -> HTMLResponse:
    """Return the page, with questions to choose from. Browsers run its own script only."""
    html = FILE.read_text("utf-8")
    script, style = (_hash(html, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    offered = "".join(f'<option value="{escape(q)}">{escape(q)}</option>' for q in questions)
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    # `no-store`: a browser that goes back shows no page with a key in it.
    headers |= {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    return HTMLResponse(html.replace("<!-- questions -->", offered), headers=headers)


def _hash(html: str, tag: str) -> str:
    [text] = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def offered_questions(file: Path) -> list[str]:
    """Return the first questions of a problem table that a chat can ask, none if it is missing."""
    with suppress(InputError):
        asked = (p.question for p in read_problems(file) if not p.choices and not p.messages)
        return [question for question, _ in zip(asked, range(OFFERED), strict=False)]
    return []
