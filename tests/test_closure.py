"""The code that a stage's digest covers, compared with the modules that Python loads."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from citer.stages import paths
from citer.storage import code as closure
from citer.storage.code import code_digest, essence, imported, stage_digests

ROOT = Path(__file__).parents[1]
LOADED = """
import importlib, json, sys
importlib.import_module("citer.stages.{stage}")
ours = [m for m in list(sys.modules.values()) if m.__name__.partition(".")[0] == "citer"]
print(json.dumps([module.__file__ for module in ours]))
"""


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Digest a copy of the package. A call replaces a text in one of its files."""
    shutil.copytree(ROOT / "citer", tmp_path / "citer")
    monkeypatch.setattr(closure, "HOME", tmp_path)

    def replace(file: str, old: str, new: str) -> None:
        source = (tmp_path / file).read_text()
        assert old in source
        (tmp_path / file).write_text(source.replace(old, new, 1))
        _forget()

    _forget()
    yield replace
    _forget()


def _forget() -> None:
    for cached in (closure._names, closure._read, closure._essence):
        cached.cache_clear()


@pytest.mark.parametrize("stage", ["evaluate", "finetune"])
def test_a_digest_covers_every_module_that_python_loads_for_the_stage(stage: str) -> None:
    command = [sys.executable, "-c", LOADED.format(stage=stage)]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    loaded = {Path(file).relative_to(ROOT) for file in json.loads(shown)}
    covered = set(imported(closure.STAGES / f"{stage}.py"))
    assert closure.STAGES / f"{stage}.py" in loaded <= covered


def test_a_digest_covers_the_modules_that_a_stage_starts_and_the_files_that_it_reads() -> None:
    covered = set(imported(Path("citer/stages/finetune.py")))
    files = ("launch.py", "trainer.py", "zero2.json")
    assert {Path("citer/training") / file for file in files} <= covered
    page = {Path("citer/report/page.html"), Path("citer/report/page.css")}
    assert page <= set(imported(Path("citer/stages/report.py")))


def test_code_that_no_stage_imports_changes_no_digest(edit: Callable[..., None]) -> None:
    before = stage_digests()
    edit("citer/evaluation/gate.py", "return Decision(True", "return Decision(False")
    edit("citer/serving/deployment.py", "advance(1)", "advance(2)")
    assert stage_digests() == before


def test_edited_code_changes_the_digests_of_the_stages_that_import_it(
    edit: Callable[..., None],
) -> None:
    before = stage_digests()
    edit("citer/labelling/scoring.py", "logits_CV.argmax(-1)", "logits_CV.argmin(-1)")
    after = stage_digests()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"score_llm", "score_slm"}


@pytest.mark.parametrize(("library", "stages"), [("math-verify", {}), ("trl", {"finetune"})])
def test_another_version_of_a_library_changes_the_stages_that_use_it(
    library: str, stages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage reads params.yaml with the tasks, which compare answers by math-verify."""
    before = stage_digests()
    real = closure.version
    monkeypatch.setattr(closure, "version", lambda name: "0.1" if name == library else real(name))
    changed = {name for name, digest in stage_digests().items() if digest != before[name]}
    assert changed == (stages or {*before})


def test_the_build_of_a_library_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest("score_llm")
    real = closure.version
    monkeypatch.setattr(closure, "version", lambda name: real(name).partition("+")[0] + "+cu130")
    assert code_digest("score_llm") == before


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ('"""Doc."""\n\nx = 1  # why\n', "x = 1"),
        ('def f():\n    """Doc\n\n    on."""\n    return "# no comment"\n', None),
        ('x = (\n    "a"  # one\n    "b"\n)\n', 'x = (\n    "a"\n    "b"\n)'),
        ("y = f'{x!r:>{3}}'\n# end", "y = f'{x!r:>{3}}'"),
        ('class C:\n    """Doc."""; z = "kept"\n', 'class C:\n    """Doc."""; z = "kept"'),
        ("", ""),
    ],
)
def test_the_essence_of_code_has_no_comments_and_docstrings(source: str, left: str | None) -> None:
    expected = 'def f():\n    return "# no comment"' if left is None else left
    assert essence(source) == expected


def test_the_digests_in_the_repository_are_those_of_its_code() -> None:
    stored = json.loads((ROOT / paths.CODE).read_text())
    assert stored == stage_digests(), "run `citer code` and commit data/code.json"
