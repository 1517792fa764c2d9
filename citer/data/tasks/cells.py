"""Read lists and structs of texts that another program wrote into a cell of a CSV file."""

import ast
import json
import re
from typing import Any

# Python's texts, and what numpy and pandas write around them: "array(['a' 'b'], dtype=object)".
TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^'\\]|\\[\\'"abfnrtvxuU])*'|"(?:[^"\\]|\\[\\'"abfnrtvxuU])*")
    |(?P<mark>[\[\]{}:])
    |(?P<array>array\(|(?:,\s*dtype=(?:object|'[^']*'))?\s*\))
    |(?P<comma>,)
    |\Z)""",
    re.VERBOSE,
)


def nested(value: Any) -> Any:
    """Return the list or struct that a text holds as JSON, or as Python or numpy write it.

    A value that is no such text is returned as it is. Nothing in a text is executed.
    """
    if not isinstance(value, str):
        return value
    for as_json in (str, _as_json):
        try:
            return json.loads(as_json(value))
        except (ValueError, SyntaxError, RecursionError):
            continue
    return value


def _as_json(cell: str) -> str:
    """Rewrite the tokens as JSON. numpy writes no comma between two texts."""
    parts: list[str] = []
    end, before = 0, ""
    while end < len(cell):
        token = TOKEN.match(cell, end)
        if not token:
            raise ValueError(cell)
        if token["text"]:
            comma = "," if before == "text" else ""
            parts.append(comma + json.dumps(ast.literal_eval(token["text"])))
        parts.append(token["mark"] or token["comma"] or "")
        end, before = token.end(), token.lastgroup or ""
    return "".join(parts)
