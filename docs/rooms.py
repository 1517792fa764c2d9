"""Write the lists of rooms and layers in docs/architecture.md: `python docs/rooms.py`."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/architecture.md"
PACKAGES = "citer", "flows", "benchmarks"


def page(text: str) -> str:
    """Return the page with both lists as they should be."""
    for name, content in {"rooms": rooms(), "layers": layers()}.items():
        begin, end = f"<!-- {name}: python docs/rooms.py -->\n", f"<!-- end of {name} -->\n"
        place = re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)
        text = place.sub(lambda _, new=content: new, text)  # type: ignore[misc]
    return text


def rooms() -> str:
    """Return a row for each package: its docstring's first line, and the names of its modules."""
    packages = [file.parent for name in PACKAGES for file in (ROOT / name).rglob("__init__.py")]
    return "".join(["| room | | modules |\n|---|---|---|\n", *map(_row, sorted(packages))])


def _row(package: Path) -> str:
    names = [f"`{file.stem}`" for file in sorted(package.glob("*.py")) if file.stem[0] != "_"]
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    purpose, room = docstring.partition("\n")[0], package.relative_to(ROOT).as_posix()
    return f"| `{room}/` | {purpose} | {' '.join(names)} |\n"


def layers() -> str:
    """Return import-linter's layers, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in settings["contracts"] if c["type"] == "layers"]
    return "".join(["```\n", *(f"{layer}\n" for layer in contract["layers"]), "```\n"])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
