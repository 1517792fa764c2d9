"""The lists of rooms and layers in docs/architecture.md are those of the code."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_lists_of_rooms_and_layers_are_up_to_date() -> None:
    text = (DOCS / "architecture.md").read_text()
    assert runpy.run_path(str(DOCS / "rooms.py"))["page"](text) == text, "run docs/rooms.py"
