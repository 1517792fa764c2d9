"""The regret over seeds: a clone and a row for each, and a killed study that continues."""

from pathlib import Path
from shutil import copyfile

import pytest
import yaml

from benchmarks import regret
from benchmarks.fresh import Answered, Seen
from benchmarks.regret import FRESH, Study, regrets
from citer.config.params import SHIPPED
from citer.evaluation.choice import Candidate
from citer.rule import Rule
from citer.storage.tables import read_as

ASKED = Study(question="Why?", seeds=(3, 5), questions=7, params={"serve.batch": 8})
DEPLOYED, OTHER = Rule("score", 0.5, by="stand"), Rule("risk", 0.4, 1, "agree")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What was asked: the clone, the seed of its settings, and that of its fresh questions."""
    asked: list[tuple[str, int, int]] = []

    def answered_fresh(questions: int, seed: int) -> Seen:
        settings = yaml.safe_load(Path("params.yaml").read_text())
        assert (questions, settings["serve"]["batch"]) == (7, 8)
        asked.append((Path.cwd().name, settings["seed"], seed))
        own = Answered("router", Candidate(DEPLOYED, 20, 1, 0.3, settings["seed"] / 10))
        return Seen(own, [own, Answered("exact", Candidate(OTHER, 20, 0, 0.2, 0.2))], 0.05)

    def written(clone: Path, settings: str) -> None:
        assert yaml.safe_load(settings)["evaluate"]["bounds"] == []
        (clone / "params.yaml").write_text(settings)

    monkeypatch.chdir(tmp_path)
    copyfile(SHIPPED, "params.yaml")
    monkeypatch.setattr(regret, "make_clone", lambda clone: clone.mkdir(parents=True))
    monkeypatch.setattr(regret, "run_stages", written)
    monkeypatch.setattr(regret, "answered_fresh", answered_fresh)
    return asked


def test_each_seed_has_a_clone_other_fresh_questions_and_a_row(
    ran: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    found = regrets(ASKED, tmp_path / "work")
    assert ran == [("seed-3", 3, FRESH + 3), ("seed-5", 5, FRESH + 5)]
    table = found["Mean regret: 100.00%."]
    assert [each["seed"] for each in table] == [3, 5]
    assert [each["regret"] for each in table] == pytest.approx([0.5, 1.5])
    assert [each["deployed cost"] for each in table] == [0.3, 0.5]
    assert table[0]["cheapest rule"] == "risk 0.4 audit 1 by agree"


def test_a_killed_study_continues_with_its_next_seed_and_keeps_all_candidates(
    ran: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    first = regrets(ASKED.model_copy(update={"seeds": (3,)}), tmp_path / "work")
    kept = read_as(tmp_path / "work/seed-3/fresh.json", Seen)
    assert [each.method for each in kept.answered] == ["router", "exact"]
    both = regrets(ASKED, tmp_path / "work")
    assert [clone for clone, *_ in ran] == ["seed-3", "seed-5"]
    [[row], _], [rows, _] = (each.values() for each in (first, both))
    assert rows[0] == row
