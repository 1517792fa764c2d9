"""`citer run --seeds` changes one number of params.yaml and nothing else."""

from pathlib import Path

import pytest

from citer.config.params import load_params
from citer.errors import InputError
from flows.seeds import set_seeds

SHIPPED = (Path(__file__).parents[2] / "params.yaml").read_bytes().decode()
TRAIN = (
    "{seed: 17, learning_rate: 1.0e-3, batch_size: 512, epochs: 20, patience: 4, dropout: 0.1, "
    "holdout: 0.2}"
)


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_bytes(SHIPPED.encode())
    return Path("params.yaml")


def test_one_number_changes_and_all_else_stays(params: Path, capsys: pytest.CaptureFixture[str]):
    set_seeds(5)
    assert params.read_text() == SHIPPED.replace("  seeds: 1 ", "  seeds: 5 ")
    assert capsys.readouterr().out == "params.yaml: train.seeds was 1, is now 5\n"
    set_seeds(12)
    set_seeds(1)
    assert params.read_text() == SHIPPED


def test_an_equal_number_writes_nothing(params: Path, capsys: pytest.CaptureFixture[str]):
    params.chmod(0o444)
    before = params.stat()
    set_seeds(1)
    assert params.stat() == before
    assert not capsys.readouterr().out


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_section_without_the_key_gets_one(params: Path, newline: str):
    """As in a params.yaml of an earlier version."""
    line = next(line for line in SHIPPED.splitlines() if line.startswith("  seeds: "))
    old = SHIPPED.replace(f"{line}\n", "").replace("\n", newline)
    params.write_bytes(old.encode())
    set_seeds(3)
    assert load_params(params).train.seeds == 3
    assert params.read_bytes().decode().replace("seeds: 3\n  ", "", 1) == old


def test_a_section_on_one_line_is_edited(params: Path):
    start, end = SHIPPED.index("train: #"), SHIPPED.index("evaluate: #")
    params.write_text(f"{SHIPPED[:start]}train: {TRAIN}\n{SHIPPED[end:]}")
    for seeds in (4, 2):
        set_seeds(seeds)
        assert load_params(params).train.seeds == seeds


def test_a_file_that_cannot_be_edited_stays(params: Path):
    start, end = SHIPPED.index("train: #"), SHIPPED.index("evaluate: #")
    text = f"{SHIPPED[:start]}train: &t {TRAIN}\n{SHIPPED[end:]}"
    text = text.replace("{seed: 17,", "{seed: 17, seeds: !!int '1',")
    params.write_text(text)
    with pytest.raises(InputError, match=r"^params.yaml: cannot be edited; write `seeds: 5` under"):
        set_seeds(5)
    assert params.read_text() == text
