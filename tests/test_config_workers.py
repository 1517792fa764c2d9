"""The section `workers`: defaults, refusals, and no stage that depends on it."""

from pathlib import Path

from citer.config.params import load_params
from citer.executors.base import WorkerParams
from tests.test_config import SHIPPED


def test_an_older_file_has_no_such_section(tmp_path: Path) -> None:
    before, _, _ = SHIPPED.read_text().partition("\nworkers:")
    (tmp_path / "params.yaml").write_text(before)
    assert load_params(tmp_path / "params.yaml").workers == WorkerParams()
