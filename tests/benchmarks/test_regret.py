"""The regret over seeds: a clone and a row for each, and a killed study that continues."""

from pathlib import Path

import pytest
import yaml

from benchmarks import regret
from benchmarks.fresh import Fresh
from benchmarks.regret import FRESH, Regret, regrets
from citer.storage.tables import read_json

ASKED = Regret(seeds=(3, 5), fresh=Fresh(questions=7))


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What was asked: the clone, the seed of its settings, and that of its fresh questions."""
    asked: list[tuple[str, int, int]] = []

    def answered_fresh(fresh: Fresh, seed: int, commit: str) -> dict:
        settings = yaml.safe_load(Path("params.yaml").read_text())
        assert (fresh, settings["pair"]) == (ASKED.fresh, {"slm": "x"})
        asked.append((Path.cwd().name, settings["seed"], seed))
        names = ("deployed", "cheapest")
        cells = {
            "rule": ("score 0.5", "score 0.4"),
            "cost": (0.5, 0.4),
            "risk": ((0.1, 0, 0.2),) * 2,
        }
        table = {name: dict(zip(names, cell, strict=True)) for name, cell in cells.items()}
        return {"tasks": {"all": table}, "regret": settings["seed"] / 10}

    def written(clone: Path, settings: dict, stage: str) -> None:
        assert stage == "report"
        (clone / "params.yaml").write_text(yaml.safe_dump(settings))

    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("seed: 17\npair: {slm: x}\n")
    monkeypatch.setattr(regret, "make_clone", lambda clone: clone.mkdir(parents=True))
    monkeypatch.setattr(regret, "run_stages", written)
    monkeypatch.setattr(regret, "answered_fresh", answered_fresh)
    return asked


def test_each_seed_has_a_clone_other_fresh_questions_and_a_row(
    ran: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    found = regrets(ASKED, tmp_path / "work")
    assert ran == [("seed-3", 3, FRESH + 3), ("seed-5", 5, FRESH + 5)]
    assert found["mean regret"] == pytest.approx(0.4)
    assert found["tasks"]["all"]["regret"] == {"seed 3": 0.3, "seed 5": 0.5}
    assert found["tasks"]["all"]["deployed cost"] == {"seed 3": 0.5, "seed 5": 0.5}
    assert found["tasks"]["all"]["cheapest rule"]["seed 3"] == "score 0.4"
    assert found["note"] == "mean regret: 40.00%\n\n"


def test_a_killed_study_continues_with_its_next_seed(
    ran: list[tuple[str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = regrets(ASKED.model_copy(update={"seeds": (3,)}), tmp_path / "work")
    assert read_json(tmp_path / "work/seed-3/regret.json")["regret"] == 0.3
    both = regrets(ASKED, tmp_path / "work")
    assert [clone for clone, *_ in ran] == ["seed-3", "seed-5"]
    assert both["tasks"]["all"]["regret"]["seed 3"] == first["tasks"]["all"]["regret"]["seed 3"]
