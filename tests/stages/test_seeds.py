"""Further seeds: trained by train@k, measured by evaluate@k and choose@k, summarised by report."""

import shutil
from pathlib import Path

import pytest

from citer.config.params import Params
from citer.errors import InputError
from citer.evaluation.choice import ChosenRule
from citer.report.spread import Seeded, Seeds
from citer.stages import evaluate, label, paths, report, rivals, train
from citer.storage.tables import digest, read_as, read_json, write_json
from tests.stages.conftest import run_all, run_killed, run_router


def with_seeds(params: Params, seeds: int) -> Params:
    section = params.train.model_copy(update={"seeds": seeds})
    return params.model_copy(update={"train": section})


@pytest.fixture
def labelled(scored: Params) -> Params:
    label.run(scored, 1)
    return scored


def weights(folder: Path) -> str:
    return digest(folder / "router.safetensors")


def test_each_seed_trains_the_router_that_it_would_train_alone(labelled: Params):
    train.run(with_seeds(labelled, 3), 1)
    home, first = paths.seeds(1), weights(paths.router(1))
    assert read_as(home / paths.TRAINED, Seeds) == Seeds(17, [18, 19])
    assert sorted(path.name for path in home.iterdir()) == ["18", "19", paths.TRAINED]
    found = [first, *(weights(home / seed) for seed in ("18", "19"))]
    assert len(set(found)) == 3
    for seed, expected in zip((17, 18, 19), found, strict=True):
        section = labelled.train.model_copy(update={"seed": seed})
        train.run(labelled.model_copy(update={"train": section}), 1)
        assert weights(paths.router(1)) == expected


def test_a_single_seed_changes_nothing_but_the_list_of_seeds(labelled: Params):
    train.run(with_seeds(labelled, 2), 1)
    several = digest(paths.router(1))
    train.run(labelled, 1)
    assert digest(paths.router(1)) == several
    assert [path.name for path in paths.seeds(1).iterdir()] == [paths.TRAINED]


@pytest.mark.slow
def test_a_killed_training_of_seeds_ends_in_the_same_bytes(labelled: Params):
    several = with_seeds(labelled, 2)
    train.run(several, 1)
    whole = digest(paths.seeds(1)), digest(paths.router(1))
    for folder in (paths.seeds(1), paths.router(1)):
        shutil.rmtree(folder)
    run_killed(several, "train", 1, module="citer.stages.train", function="write_bundle")
    train.run(several, 1)
    assert (digest(paths.seeds(1)), digest(paths.router(1))) == whole


@pytest.fixture
def seeded(taught: Params) -> Params:
    """Enter a project in which router 1 has two more seeds: copies of router 2 and of router 1."""
    rivals.run(taught)
    for seed, iteration in ((18, 2), (19, 1)):
        shutil.copytree(paths.router(iteration), paths.seeds(1) / str(seed))
    write_json(paths.seeds(1) / paths.TRAINED, {"router": 17, "further": [18, 19]})
    for iteration in (1, 2):
        run_router(taught, iteration)
    return taught


@pytest.mark.slow
def test_each_seed_gets_the_rules_and_numbers_that_its_router_gets_by_itself(seeded: Params):
    by_seed: dict[int, list[dict]] = {}
    for row in read_as(paths.report(1) / paths.SPREAD, list[Seeded]):
        report_of = paths.report(2 if row.seed == 18 else 1)
        chosen = read_as(report_of / "chosen.json", dict[str, ChosenRule])[row.method]
        metrics = read_json(report_of / "metrics.json")[row.method]
        own = metrics if row.task == "all" else metrics[row.task]
        assert row.rule == str(chosen.rule)
        assert {name: own[name] for name in row.numbers} == row.numbers
        by_seed.setdefault(row.seed, []).append(row.numbers)
    assert by_seed[17] == by_seed[19] != by_seed[18]
    _check_summary(seeded)


def _check_summary(params: Params) -> None:
    """The summary has the spread of both methods, on all tasks and on each."""
    report.run(params)
    stored = read_json(paths.SUMMARY / paths.SPREAD)
    assert {(row["task"], row["method"]) for row in stored} == {
        (task, f"{name}_1") for task in ("all", "math", "mc") for name in ("router", "audited")
    }
    table = (paths.SUMMARY / "table.md").read_text()
    assert "## Seeds of training" in table
    numbers = [row["statistics"]["cost_b1"] for row in stored if row["task"] == "all"]
    for each in numbers:
        assert f"{each['mean']:.3f} ± {each['deviation']:.3f}" in table
    assert any(each["deviation"] for each in numbers)


def test_without_further_seeds_the_summary_says_nothing_of_them(params: Params):
    run_all(params)
    assert not (paths.SUMMARY / paths.SPREAD).exists()
    assert "seed" not in (paths.SUMMARY / "table.md").read_text().lower()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [([], r"expected"), ({"router": 17}, "further"), ({"router": 17, "further": [18]}, "18")],
)
def test_seeds_that_are_damaged_are_refused_in_one_line(params: Params, content, complaint):
    rivals.run(params)
    write_json(paths.seeds(1) / paths.TRAINED, content)
    with pytest.raises(InputError, match=rf"^data/seeds/1/.*{complaint}"):
        evaluate.run(params, 1)
