"""What a worktree gets of its checkout: questions, the pair, DVC's cache, remotes and settings."""

import shutil
from pathlib import Path

import pytest
from dvc.config import Config

from citer.errors import InputError
from citer.storage.tables import write_text
from flows.dvc_commands import dvc
from flows.worktree import check, fill, git
from tests.flows.project import LLM, change_params, commit

OWN = Path("data/own")
TREE = Path(".retrain/tree")


def filled() -> Path:
    if not TREE.exists():
        git("worktree", "add", "--detach", str(TREE))
    fill(TREE)
    return TREE


def use_llm(folder: str) -> None:
    """Name another folder of the LLM in params.yaml, and commit."""
    change_params("pair", llm=folder)
    commit(Path())


def test_questions_that_nobody_tracks_are_those_of_the_checkout(checkout: Path) -> None:
    write_text(OWN / "week/a.jsonl", "a")
    write_text(OWN / "week/.b.jsonl", "being written")
    write_text(Path("elsewhere"), "c")
    (OWN / "c.jsonl").symlink_to(checkout / "elsewhere")
    tree = filled()
    assert (tree / OWN / "week/a.jsonl").read_text() == "a"
    assert not (tree / OWN / "week/.b.jsonl").exists()
    assert (tree / OWN / "c.jsonl").read_text() == "c"
    shutil.rmtree(OWN / "week")
    write_text(OWN / "d.jsonl", "d")
    files = filled() / OWN
    assert {file.name for file in files.iterdir()} == {".gitkeep", "c.jsonl", "d.jsonl"}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cache", "remote"])
def test_questions_that_dvc_tracks_are_those_of_the_commit(checkout: Path, place: str) -> None:
    if place == "remote":
        dvc("remote", "add", "--local", "--default", "store", "../store")
    write_text(OWN / "a.jsonl", "a")
    dvc("add", str(OWN / "a.jsonl"))
    commit(Path())
    if place == "remote":
        dvc("push")
        shutil.rmtree(".dvc/cache")
    (OWN / "a.jsonl").unlink()
    check()
    assert (filled() / OWN / "a.jsonl").read_text() == "a"
    write_text(OWN / "a.jsonl", "b")
    with pytest.raises(InputError, match=r"^data/own/a\.jsonl: not as it was added"):
        check()


def test_a_pair_that_git_does_not_track_is_linked(checkout: Path) -> None:
    with Path(".gitignore").open("a") as stream:
        stream.write("/models/\n")
    shutil.copytree(LLM, "models/llm")
    use_llm("models/llm")
    tree = filled()
    assert (tree / "models/llm").readlink() == checkout / "models/llm"
    assert not (tree / LLM).is_symlink()
    assert git("status", "--porcelain", folder=tree) == ""


def test_a_pair_beside_the_project_is_refused_unless_its_path_is_absolute(checkout: Path) -> None:
    use_llm("../llm")
    with pytest.raises(InputError, match=r"^params\.yaml: pair\.llm: \.\./llm leads out of"):
        check()
    use_llm(str(checkout.parent / "llm"))
    check()


def test_dvc_has_the_settings_of_the_checkout_and_keeps_them_private(checkout: Path) -> None:
    with Path(".dvc/config").open("a") as stream:
        stream.write("['remote \"store\"']\nurl = ../../store\n")
    commit(Path())
    own = "[cache]\ndir = ../../cache\n['remote \"cloud\"']\nurl = s3://cloud\n"
    write_text(Path(".dvc/config.local"), f"{own}secret_access_key = secret\n")
    settings = Config(str(filled() / ".dvc"))
    assert settings["remote"]["store"]["url"] == str(checkout.parent / "store")
    assert settings["remote"]["cloud"]["secret_access_key"] == "secret"
    assert settings["cache"]["dir"] == str(checkout.parent / "cache")
    assert Path(settings.files["local"]).stat().st_mode & 0o077 == 0
