"""The Dockerfiles and what they install."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docker.tools import DOCKER, DOCKERFILES, ROOT, on_linux, run, versions

each_dockerfile = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
CONSTRAINTS = versions(ROOT / "constraints.txt")


def lines(dockerfile: Path, instruction: str) -> list[list[str]]:
    """Return the words of all instructions of this kind, without options."""
    found = re.findall(rf"^{instruction} (.+)$", dockerfile.read_text(), re.MULTILINE)
    return [[word for word in line.split() if not word.startswith("--")] for line in found]


@on_linux
def test_dockerfiles_pass_hadolint() -> None:
    run("hadolint", *DOCKERFILES)


@each_dockerfile
def test_the_context_has_all_files_that_are_copied(dockerfile: Path) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    sources = [source for words in lines(dockerfile, "COPY") for source in words[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        assert source.split("/")[0] in allowed


@each_dockerfile
def test_base_images_are_pinned_and_the_user_is_not_root(dockerfile: Path) -> None:
    [[image]] = lines(dockerfile, "FROM")
    assert re.search(r":v?\d+\.\d+\.\d+", image)
    assert lines(dockerfile, "USER") == [["1000"]]


def test_the_server_image_has_no_torch_and_tested_versions_only() -> None:
    text = (DOCKER / "server.txt").read_text()
    required = {line.lower() for line in text.splitlines() if not line.startswith("#")}
    assert {"prefect", "mlflow"} <= required <= CONSTRAINTS.keys()
    assert not {"torch", "citer"} & required


def test_the_worker_image_installs_extras_of_this_project() -> None:
    [extras] = re.findall(r"-e '\.\[(.+)\]'", (DOCKER / "worker.Dockerfile").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed, known = set(extras.split(",")), project["optional-dependencies"].keys()
    assert {"pipeline", "s3", "serve"} <= installed <= known


def test_the_vllm_image_has_the_version_of_the_extra() -> None:
    [[image]] = lines(DOCKER / "vllm.Dockerfile", "FROM")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [required] = [name for name in project["optional-dependencies"]["vllm"] if "vllm" in name]
    assert Requirement(required).specifier.contains(image.partition(":v")[2])


def test_cuda_pins_stand_beside_those_of_torch() -> None:
    cuda = versions(DOCKER / "constraints-cuda.txt")
    assert not cuda.keys() & CONSTRAINTS.keys()
    assert all(re.fullmatch(r"[\d.]+", version) for version in cuda.values())
    assert f"torch {CONSTRAINTS['torch']}" in (DOCKER / "constraints-cuda.txt").read_text()
    assert {"nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "triton"} <= cuda.keys()


def test_secret_files_become_variables_and_a_missing_one_stops_the_command(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a b$c\n")
    script = DOCKER / "with-secrets"
    shown = run(script, "sh", "-c", 'echo "$PGPASSWORD"', PGPASSWORD_FILE=str(secret))
    assert shown == "a b$c\n"
    assert run(script, "sh", "-c", 'echo "${PGPASSWORD-unset}"') == "unset\n"
    with pytest.raises(AssertionError, match="No such file"):
        run(script, "true", PGPASSWORD_FILE=str(tmp_path / "none"))


def test_commands_of_compose_read_every_secret_file() -> None:
    named = set(re.findall(r"(\w+)_FILE: /run", (DOCKER / "compose.yaml").read_text()))
    script = (DOCKER / "with-secrets").read_text()
    assert named - {"POSTGRES_PASSWORD"} <= set(re.findall(r"[A-Z_]{5,}", script))
