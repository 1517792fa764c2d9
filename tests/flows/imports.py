"""Which files of `citer` a module imports or runs as `python -m`, directly or not."""

import ast
from collections.abc import Iterator
from pathlib import Path


def imported(start: Path) -> set[Path]:
    """`start` and every file of `citer` with code in it that it leads to."""
    found: set[Path] = set()
    pending = [start]
    while pending:
        file = pending.pop()
        if file not in found and (file == start or _has_code(file)):
            found.add(file)
            pending += _imports(file)
    return found


def _has_code(file: Path) -> bool:
    return any(not isinstance(node, ast.Expr) for node in ast.parse(file.read_text()).body)


def _imports(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                for name in [module, *(f"{module}.{alias.name}" for alias in names)]:
                    yield from _files(name)
            case ast.Import(names=names):
                for alias in names:
                    yield from _files(alias.name)
            case ast.Constant(value=str(name)):
                yield from _files(name)


def _files(module: str) -> Iterator[Path]:
    """The file of `module` and those of the packages around it; nothing if it is not ours."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1) if parts[0] == "citer" else ():
        path = Path(*parts[:depth])
        candidates = (path.with_suffix(".py"), path / "__init__.py")
        yield from filter(Path.exists, candidates)
