"""The command line: bad input gets one line and exit status 2; heavy imports come late."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import typer

from benchmarks.bench import ROWS
from citer.cli import main as cli
from citer.cli import tools
from citer.rule import EXPECTED

PARAMS = Path(__file__).parents[1] / "citer/config/params.yaml"


def citer(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from citer.cli.main import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with params.yaml alone."""
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Call a command that is refused, and return the only line of its complaint."""

    def call(*arguments: str) -> str:
        assert cli.call([*arguments]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("citer: ")
        return line.removeprefix("citer: ")

    return call


def test_a_folder_that_is_no_project_is_reported_in_one_line(tmp_path: Path) -> None:
    done = citer("prepare", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "citer: params.yaml: no such file; run in the project's folder\n"


@pytest.mark.parametrize(
    ("stage", "iteration"),
    [
        *product(["label", "train", "evaluate"], ["7", "3", "0", "01", "x"]),
        *product(["choose"], ["7", "3", "01", "x"]),  # `choose 0` is a stage
    ],
)
def test_an_iteration_that_params_yaml_does_not_list_is_reported_before_the_stage_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal, stage: str, iteration: str
) -> None:
    monkeypatch.setattr("citer.cli.stages.import_module", lambda name: pytest.fail(name))
    expected = f"params.yaml lists iterations 1, 2, not {iteration}"
    assert refusal(stage, iteration) == expected


def test_a_full_disk_is_reported_in_one_line_with_the_status_for_a_retry(
    tmp_path: Path,
) -> None:
    text = PARAMS.read_text().replace("sft: 1500", "sft: 20").replace("test: 500", "test: 20")
    (tmp_path / "params.yaml").write_text(text)
    program = (
        "import resource; from citer.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); main()"
    )
    command = [sys.executable, "-B", "-c", program, "prepare"]  # no cut off bytecode stays
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "citer: data/problems/sft.parquet: File too large",
    )
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "data").iterdir())


NO_ROUTER = "no router.json there, expected models:/NAME@ALIAS or a router's folder"


GENERATE = ["generate", "--router", "r", "--input", "q", "--output", "o", "--rule"]


@pytest.fixture
def with_router(project: Path) -> Path:
    """The project with an empty router's file, and without questions."""
    (project / "r").mkdir()
    (project / "r/router.json").touch()
    return project


def test_a_missing_input_is_all_that_is_reported(with_router: Path) -> None:
    done = citer(*GENERATE, "score 0.5", cwd=with_router)
    assert (done.returncode, done.stderr) == (2, "citer: q: no such file\n")


@pytest.fixture
def refused_answers(with_router: Path, refusal: Refusal) -> Refusal:
    """Call `citer generate` with an option that it cannot use."""
    return lambda option, value: refusal(*GENERATE, "score 0.5", option, value)


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        *(("--rule", each, f"--rule: {each!r}: {EXPECTED}") for each in ("", "risk 0.9 audit")),
        *(
            ("--router", each, f"--router: {each!r}: {NO_ROUTER}")
            for each in ("runs:/abc", "nowhere", "models")
        ),
    ],
)
def test_what_generate_cannot_use_is_reported_in_one_line(
    refused_answers: Refusal, option: str, value: str, complaint: str
) -> None:
    assert refused_answers(option, value) == complaint


@pytest.mark.parametrize("option", ["--router", "--input"])
def test_a_path_that_is_too_long_is_reported_in_one_short_line(
    refused_answers: Refusal, option: str
) -> None:
    line = refused_answers(option, "x" * 5000)
    assert line.endswith(": File name too long")
    assert len(line) < 650


def test_pretrain_never_replaces_the_folder_of_another_pair(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PARAMS.read_text().replace("slm: data/pair/slm", "slm: models/mine")
    (project / "params.yaml").write_text(text)
    made: list[Path] = []
    monkeypatch.setattr("benchmarks.pretrain.make_pair", lambda folder, seed: made.append(folder))
    monkeypatch.setattr(tools, "_need_benchmarks", lambda command: None)
    tools.pretrain()
    assert made == [Path("data/pair")]


@pytest.mark.parametrize("version", ["0", "x", "1.0", "9" * 30])
@pytest.mark.parametrize("command", ["promote", "restore"])
def test_a_version_that_is_no_number_is_reported_in_one_line(
    command: str, version: str, refusal: Refusal
) -> None:
    expected = f"VERSION: {version!r}: expected a whole number from 1"
    assert refusal(command, version) == expected


def test_each_error_of_params_yaml_is_reported_in_a_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "params.yaml").write_text(PARAMS.read_text().replace("epochs: 20", "epoch: 20"))
    assert cli.call(["train", "1"]) == 2
    missing, unknown = capsys.readouterr().err.splitlines()
    assert missing == "citer: params.yaml: train.epochs: missing; default: 20"
    expected = "citer: params.yaml: train: unknown key 'epoch'; expected learning_rate, "
    assert unknown.startswith(expected)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["alerts", "notaurl"], "notaurl: expected http://… or https://…, or TYPE/NAME"),
        (["serve", "--router", "models:/r"], "models:/r: expected models:/NAME@ALIAS or "),
        (
            ["generate", "--router", "models:/r", "--input", "q", "--output", "a"],
            "models:/r: expected models:/NAME@ALIAS or ",
        ),
    ],
)
def test_a_bad_argument_is_reported_before_the_slow_imports(
    project: Path, arguments: list[str], complaint: str
) -> None:
    program = (
        "import sys; from citer.cli.main import call; status = call(sys.argv[1:])\n"
        "print(status, sorted({'prefect', 'mlflow', 'torch', 'transformers'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr.count("\n")) == ("2 []\n", 1)
    assert done.stderr.startswith(f"citer: {complaint}")


def full_python() -> None:
    bytearray(2**62)


def full_numpy() -> None:
    np.empty(2**50)


def full_arrow() -> None:
    pa.allocate_buffer(2**60)


def full_torch() -> None:
    torch.empty(2**50)


def full_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nTry this.")


@pytest.mark.parametrize("fill", [full_python, full_numpy, full_arrow, full_torch, full_gpu])
def test_full_memory_is_reported_in_one_line_with_what_to_lower(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fill: Callable[[], None],
) -> None:
    monkeypatch.setattr("citer.stages.label.run", lambda params, iteration: fill())
    assert cli.call(["label", "1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("citer: label: out of memory: ")
    assert said.endswith("; lower decode.slots in params.yaml\n")
    assert said.count("\n") == 1


def test_any_other_error_keeps_its_traceback(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.stages.label.run", lambda params, iteration: {}[iteration])
    with pytest.raises(KeyError):
        cli.call(["label", "1"])


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started = "flows.process_tree.run_command"
    monkeypatch.setattr(started, lambda *command: pytest.fail("a server starts"))


@pytest.mark.parametrize("folder", [".dvc", "data", "mlruns"])
def test_a_project_that_cannot_be_written_is_reported_before_a_server_starts(
    project: Path, no_server: None, refusal: Refusal, folder: str
) -> None:
    (project / folder).touch()  # root may write to any folder, but not below a file
    expected = rf"{re.escape(folder)}/[\w./]+: cannot be written: (Not a directory|File exists)"
    assert re.fullmatch(expected, refusal("run"))


def test_a_model_that_is_missing_is_reported_before_a_server_starts(
    project: Path, no_server: None, refusal: Refusal
) -> None:
    expected = "no config.json, expected a Hugging Face model folder"
    assert refusal("run") == f"params.yaml: pair.slm: data/pair/slm: {expected}"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["--version"]) == 0
    assert capsys.readouterr().out == f"citer {version('citer')}\n"


def test_a_shell_can_complete_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_CITER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "citer re")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert cli.call([]) == 0
    assert capsys.readouterr().out.split() == ["restore", "references", "report"]


@pytest.mark.parametrize("url", ["nonsense", "ftp://a", "http://:8000"])
def test_an_address_that_is_none_is_refused_before_it_is_asked(url: str, refusal: Refusal) -> None:
    line = refusal("certify", "--url", url, "--rule", "audit 0.25")
    assert line == f"--url: {url!r}: expected http://HOST:PORT"


@pytest.mark.parametrize("command", ["bench", "pretrain"])
@pytest.mark.usefixtures("project")
def test_benchmarks_need_a_clone(command: str, refusal: Refusal) -> None:
    Path("benchmarks").mkdir()  # another folder of this name
    assert "no folder benchmarks here; expected a clone" in refusal(command)


def test_help_of_bench_lists_every_row() -> None:
    assert ", ".join(ROWS) == tools.ROWS


def test_help_explains_every_argument() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        unexplained = [each.name for each in command.params if not (each.help or each.hidden)]
        assert (name, unexplained) == (name, [])


def test_help_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'pandas', 'pyarrow', 'prefect', 'mlflow', 'dvc'}"
    code = f"import sys, citer.cli.main; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
