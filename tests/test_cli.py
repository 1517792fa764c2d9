"""The command line: bad input gets one line and exit status 2; heavy imports come late."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from benchmarks.bench import ROWS
from citer import cli
from citer.commands import tools
from citer.rule import EXPECTED

PARAMS = Path(__file__).parents[1] / "params.yaml"


def citer(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from citer.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_folder_that_is_no_project_is_reported_in_one_line(tmp_path: Path) -> None:
    done = citer("prepare", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "citer: params.yaml: no such file; run in the project's folder\n"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("epochs: 20", "epoch: 20", "params.yaml: train: unknown key 'epoch'; expected"),
        ("rule: risk", "rule: rusk", "params.yaml: label.rule: 'rusk 0.9 audit 0.1': expected "),
        ("tie: slm", "tie: me", "params.yaml: label.tie: 'me': "),
    ],
)
def test_a_wrong_parameter_is_reported_in_one_line_with_key_and_value(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    assert old in PARAMS.read_text()
    (tmp_path / "params.yaml").write_text(PARAMS.read_text().replace(old, new))
    done = citer("train", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"citer: {complaint}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("stage", ["label", "train", "evaluate", "choose"])
@pytest.mark.parametrize("iteration", ["7", "3", "0", "01", "x"])
def test_an_iteration_that_params_yaml_does_not_list_is_reported_before_the_stage_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    iteration: str,
) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("citer.commands.stages.import_module", lambda name: pytest.fail(name))
    assert cli.call([stage, iteration]) == 2
    line = f"citer: params.yaml lists iterations 1, 2, not {iteration}\n"
    assert capsys.readouterr().err == line


def test_a_full_disk_is_reported_in_one_line_with_the_status_for_a_retry(
    tmp_path: Path,
) -> None:
    text = PARAMS.read_text().replace("sft: 1500", "sft: 20").replace("test: 500", "test: 20")
    (tmp_path / "params.yaml").write_text(text)
    program = (
        "import resource; from citer.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); main()"
    )
    command = [sys.executable, "-c", program, "prepare"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "citer: data/problems/sft.parquet: File too large",
    )
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("option", ["--router", "--input"])
def test_a_path_that_is_too_long_is_reported_in_one_line(tmp_path: Path, option: str) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    done = generate("--rule", "score 0.5", option, "x" * 5000, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith(": File name too long\n")
    assert len(done.stderr) < 650


def generate(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `citer generate` with a missing input and an empty router file."""
    (cwd / "r").mkdir()
    (cwd / "r/router.json").touch()
    return citer("generate", "--router", "r", "--input", "q", "--output", "o", *options, cwd=cwd)


def test_a_missing_input_is_reported_in_one_line_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    done = generate("--rule", "score 0.5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "citer: q: no such file\n",
    )


@pytest.mark.parametrize("rule", ["", "tau 0.5", "score 1.5", "risk 0.9 audit"])
def test_an_invalid_rule_is_reported_in_one_line_with_the_expected_form(
    tmp_path: Path, rule: str
) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    done = generate("--rule", rule, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"citer: --rule: {rule!r}: {EXPECTED}\n")


@pytest.mark.parametrize("rule", ["score 0.5", "every 8"])
def test_disagreements_need_a_rule_that_audits(tmp_path: Path, rule: str) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    done = generate("--rule", rule, "--disagreements", "d", cwd=tmp_path)
    expected = f"`{rule}` has no audit, expected `… audit β`"
    assert (done.returncode, done.stderr) == (2, f"citer: --disagreements: {expected}\n")


@pytest.mark.parametrize("router", ["", "runs:/abc", "nowhere", "models"])
def test_a_missing_router_is_reported_in_one_line_with_the_expected_form(
    tmp_path: Path, router: str
) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.read_text())
    done = generate("--router", router, cwd=tmp_path)
    expected = "no router.json there, expected models:/NAME@ALIAS or a router's folder"
    assert (done.returncode, done.stderr) == (2, f"citer: --router: {router!r}: {expected}\n")


def test_pretrain_never_replaces_the_folder_of_another_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PARAMS.read_text().replace("slm: data/pair/slm", "slm: models/mine")
    (tmp_path / "params.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    made: list[Path] = []
    monkeypatch.setattr("citer.pretrain.make_pair", lambda folder, seed: made.append(folder))
    tools.pretrain()
    assert made == [Path("data/pair")]


@pytest.mark.parametrize("version", ["0", "x", "1.0", "9" * 30])
@pytest.mark.parametrize("command", ["promote", "restore"])
def test_a_version_that_is_no_number_is_reported_in_one_line(
    command: str, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call([command, version]) == 2
    line = f"citer: VERSION: {version!r}: expected a whole number from 1\n"
    assert capsys.readouterr().err == line


def test_help_of_bench_lists_every_row() -> None:
    assert ", ".join(f"{row.number} {row.name}" for row in ROWS) == tools.ROWS


def test_help_explains_every_argument() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        unexplained = [param.name for param in command.params if not param.help]
        assert (name, unexplained) == (name, [])


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = "{'torch', 'transformers', 'pandas', 'pyarrow', 'prefect', 'mlflow', 'dvc'}"
    code = f"import sys, citer.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
