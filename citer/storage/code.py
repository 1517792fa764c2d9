"""The digest of the code that a stage runs. If it changes, the stage's results are stale.

The digest covers every file of `citer` that the stage's module imports, directly or not, or starts
with `python -m`. It also covers the versions of the imported libraries in `LIBRARIES`. It ignores
comments, docstrings and blank lines.
"""

import ast
import io
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tokenize import COMMENT, DEDENT, INDENT, NEWLINE, NL, STRING, generate_tokens

from citer.storage.tables import digest

HOME = Path(__file__).parents[2]  # the folder that holds the package
STAGES = Path("citer/stages")
LIBRARIES = ["math-verify", "peft", "scipy", "torch", "transformers", "trl"]
DATA = (".json", ".html", ".css", ".js")  # files that code reads from its own folder
BLANK = (COMMENT, NL, INDENT, DEDENT)


def stage_digests() -> dict[str, str]:
    """Return the digest of every stage, by name."""
    files = sorted(path.relative_to(HOME) for path in (HOME / STAGES).glob("*.py"))
    names = [file.stem for file in files if "\ndef run(" in _read(file)]
    return {name: code_digest(name) for name in names if name != "code"}


def code_digest(stage: str) -> str:
    """Return the digest of the code that a stage runs and of the versions of its libraries."""
    files = imported(STAGES / f"{stage}.py")
    code = [part for file in files for part in (file.as_posix(), _essence(file))]
    used = {name.partition(".")[0] for file in files for name in _names(file)}
    libraries = [name for name in LIBRARIES if name.replace("-", "_") in used]
    return digest(*code, *map(_version, libraries))


def _version(library: str) -> str:
    """Return a version without its local part (`+cpu`, `+cu130`), which names the device."""
    try:
        return version(library).partition("+")[0]
    except PackageNotFoundError:  # scipy, for example: `citer generate` runs without it
        return "not installed"


def imported(start: Path) -> list[Path]:
    """Return `start` and every file of `citer` that it uses, directly or not."""
    visited: set[Path] = set()
    pending = [start]
    while pending:
        file = pending.pop()
        if file not in visited:
            visited.add(file)
            pending += (path for name in _names(file) for path in _files(file, name))
    return sorted(visited)


@cache
def _names(file: Path) -> frozenset[str]:
    """Return the imports of a file, and its string constants that name a module or a data file."""
    return frozenset(_named(ast.parse(_read(file)))) if file.suffix == ".py" else frozenset()


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.ImportFrom(module=str(module), names=names):
            yield from (module, *(f"{module}.{alias.name}" for alias in names))
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.Constant(value=str(text)) if text.startswith("citer.") or text.endswith(DATA):
            yield text
    for child in ast.iter_child_nodes(node):
        yield from _named(child)


def _files(file: Path, name: str) -> Iterator[Path]:
    """Yield the files of `name`: a module and its packages, or a data file in the same folder."""
    parts = name.split(".") if name.startswith("citer.") else []
    modules = [Path(*parts[: depth + 1]) for depth in range(len(parts))]
    found = [file for path in modules for file in (path.with_suffix(".py"), path / "__init__.py")]
    if name.endswith(DATA):
        found.append(file.with_name(Path(name).name))
    yield from (path for path in found if (HOME / path).is_file())


@cache
def _read(file: Path) -> str:
    return (HOME / file).read_text(encoding="utf-8")


@cache
def _essence(file: Path) -> str:
    return essence(_read(file)) if file.suffix == ".py" else _read(file)


def essence(source: str) -> str:
    """Return Python code without comments, docstrings and blank lines."""
    lines = source.splitlines()
    tokens = list(generate_tokens(io.StringIO(source).readline))
    code = [token for token in tokens if token.type not in BLANK]
    dropped = [token for token in tokens if token.type == COMMENT]
    for before, token, after in zip([None, *code], code, code[1:], strict=False):
        is_first = before is None or before.type == NEWLINE
        if token.type == STRING and is_first and after.type == NEWLINE:  # a docstring
            dropped.append(token)
    for token in sorted(dropped, key=lambda token: token.start, reverse=True):
        (first, begin), (last, end) = token.start, token.end
        lines[first - 1 : last] = [lines[first - 1][:begin] + lines[last - 1][end:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())
