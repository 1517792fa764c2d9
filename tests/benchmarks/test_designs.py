"""Many pairs: their questions, their runs, what is compared, and a killed study that continues."""

import json
from itertools import chain
from pathlib import Path
from shutil import copyfile
from subprocess import CalledProcessError
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import study as module
from benchmarks.study import (
    COMPARED,
    NAMES,
    REGRET,
    Pairs,
    Subject,
    compared,
    measured,
    pairs,
    pooled,
    read_study,
    rows_of,
)
from citer.config.params import load_params
from citer.demo import toy
from citer.demo.knowledge import TRUTH, Design, knowledge
from citer.evaluation.points import rule_columns
from citer.rule import LLM, SLM, Rule
from citer.stages import paths
from citer.storage.schema import OUTCOME, PREFERENCE
from citer.storage.tables import read_json, write_json

ROWS = {"train": 40, "validation": 20, "test": 60}
STUDY = read_study("pairs").model_copy(update={"rows": ROWS})
QUESTIONS, LLM_BYTES = 1000, 100


def outcomes(method: str, rule: Rule, right: int, moved: int) -> pa.Table:
    """Answers to all questions, of which the first are right."""
    zeros = dict.fromkeys(("llm_tokens", "visits", "audited", "disagreed", "rejected"), 0)
    rows = [
        {"split": "test", "method": method, **rule_columns(rule), "problem_id": f"q{n:04d}"}
        | {"task": "math", "correct": n < right, "truncated": False, "tokens": 9}
        | {**zeros, "slm_steps": 9, "bytes": moved}
        for n in range(QUESTIONS)
    ]
    return pa.Table.from_pylist(rows, OUTCOME)


rule = Rule.parse
RIVALS = pa.concat_tables(
    [
        outcomes("slm", SLM, 0, 1),
        outcomes("llm", LLM, QUESTIONS, LLM_BYTES),
        outcomes("policy", rule("risk 0.8 audit 0.25 by agree"), 990, 40),
        outcomes("policy", rule("score 0.5 by contested_slm_logistic"), 990, 32),
        outcomes("speculative", rule("every 4 audit 1"), QUESTIONS, 50),
        outcomes("policy", rule("every 4 audit 0.25"), 990, 45),
        outcomes("co_llm", rule("score 0.5 by co_llm"), 990, 35),
        outcomes("policy", rule("risk 0.8 audit 0.25 by co_llm"), 990, 30),
    ]
)
RUNS = {
    "1": outcomes("router", rule("score 0.5 by narrow"), 990, 25),
    "2": pa.concat_tables(
        [
            outcomes("policy", rule("score 0.5 by narrow"), 990, 20),
            outcomes("policy", rule("risk 0.8 audit 0.25 by narrow"), 990, 19),
        ]
    ),
    "1 by suffix": outcomes("policy", rule("score 0.5 by narrow"), 990, 16),
}

DEPLOYED = rule("score 0.5 by narrow")


def test_the_cheapest_rules_that_reach_99_percent_are_compared() -> None:
    """The others are too bold or too dear. No mix is cheaper: it needs as many right answers."""
    bold = outcomes("policy", rule("score 0.1 by narrow"), 500, 12)
    runs = RUNS | {"2": pa.concat_tables([RUNS["2"], bold])}
    found = compared(RIVALS, runs, DEPLOYED, epsilon=0.05)
    assert (found["slm"], found["llm"], found["cost"]) == (0, 1, pytest.approx(0.19))
    changes = {name: found[name]["change"][0] for name in COMPARED}
    assert changes == {
        "preferences above agreement": pytest.approx(19 / 40 - 1),
        "preferences above Co-LLM": pytest.approx(19 / 30 - 1),
        "CITER above Co-LLM": pytest.approx(20 / 35 - 1),
        "rollouts above suffix": pytest.approx(25 / 16 - 1),
        "rollouts above contested → SLM": pytest.approx(25 / 32 - 1),
        "hidden state above ten numbers": pytest.approx(19 / 32 - 1),
        "routing above speculation": pytest.approx(19 / 50 - 1, abs=0.01),
        "audits above none": pytest.approx(19 / 20 - 1),
        "iteration 2 above 1": pytest.approx(19 / 25 - 1),
    }
    for name in COMPARED:
        low, high = found[name]["change"][1:]
        assert low <= found[name]["change"][0] <= high
        assert len(found[name]["drawn"]) == module.KEPT


def test_the_deployed_rule_stands_beside_the_cheapest_that_loses_few_answers() -> None:
    """A cheaper rule loses 5.1 % of the answers that the LLM has right; a larger ε allows it."""
    bold = outcomes("policy", rule("score 0.1 by narrow"), 949, 12)
    runs = RUNS | {"2": pa.concat_tables([RUNS["2"], bold])}
    found = {e: compared(RIVALS, runs, DEPLOYED, epsilon=e) for e in (0.05, 0.1)}
    assert found[0.05][REGRET]["cost"] == pytest.approx(0.2)
    assert found[0.05][REGRET]["change"][0] == pytest.approx(20 / 19 - 1)
    assert found[0.1][REGRET]["change"][0] == pytest.approx(20 / 12 - 1)
    assert found[0.05]["deployed"] == "score 0.5 by narrow"
    middle, low, high = found[0.05]["lost"]
    assert middle == pytest.approx(0.01)
    assert 0 < low < middle < high < 0.02


def test_a_mix_of_two_rules_reaches_what_lies_between_them() -> None:
    """The LLM answers half of the questions: 980 + 20 / 2 right."""
    runs = RUNS | {"2": outcomes("policy", rule("score 0.5 by narrow"), 980, 18)}
    found = compared(RIVALS, runs, DEPLOYED, epsilon=0.05)["iteration 2 above 1"]
    assert found["cost"] == pytest.approx((18 + 0.5 * (LLM_BYTES - 18)) / LLM_BYTES)


def unit(change: float, spread: float) -> dict[str, Any]:
    drawn = np.random.default_rng(1).normal(change, spread, module.KEPT).round(4).tolist()
    own = {"cost": 0.2, "change": [change, change - 2 * spread, change + 2 * spread]}
    return {"slm": 0.4, "llm": 1.0, "cost": 0.2} | dict.fromkeys(NAMES, own | {"drawn": drawn})


def test_the_mean_over_pairs_has_an_interval_over_pairs_and_questions() -> None:
    [alone, *_], [same, *_] = pooled([unit(-0.1, 0.01)]), pooled([unit(-0.1, 0.01)] * 20)
    [apart, *_] = pooled([unit(-0.1, 0.01), unit(0.1, 0.01)])
    assert [alone["mean above"][0], same["mean above"][0]] == pytest.approx([-0.1, -0.1])
    width = {
        n: each["mean above"][2] - each["mean above"][1] for n, each in enumerate((alone, same))
    }
    assert width[0] == pytest.approx(0.04, rel=0.3)  # of the questions alone
    assert width[1] < width[0] / 3
    assert apart["mean above"][0] == pytest.approx(0)
    assert apart["mean above"][1] < -0.09  # both draws are the same pair
    assert apart["mean above"][2] > 0.09
    assert (apart["cheaper on"], apart["dearer on"]) == (1, 1)


@pytest.mark.parametrize("task", toy.FAMILIES)
def test_only_test_asks_for_unseen_names(task: str) -> None:
    names = [*knowledge(TRUTH).towns.group, *knowledge(TRUTH).goods.group]

    def asked(subject: Subject) -> dict[str, set[str]]:
        rows = rows_of(STUDY, subject, task)
        assert {split: len(own) for split, own in rows.items()} == ROWS
        texts = [json.dumps(row) for row in chain(*rows.values())]
        assert len({*texts}) == len(texts)
        return {s: {n for n in names if n in str(own)} for s, own in rows.items()}

    own = asked(Subject(seed=5, unseen=0.25))
    assert own == asked(Subject(seed=5, unseen=0.25))
    known = own["train"] | own["validation"]
    assert len(known) < len(names) * 0.75
    assert own["test"] - known
    assert asked(Subject(seed=5))["train"] != own["train"]


@pytest.mark.parametrize(("design", "same"), [({"openings": 1}, True), ({}, False)])
def test_rows_have_the_design_of_their_pair(design: dict[str, int], same: bool) -> None:
    rows = rows_of(STUDY, Subject(seed=5, design=design), "math")["train"]
    assert all(row["solution"].startswith("Again, ") for row in rows) is same


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done: a pair that was made, or settings of a run."""
    done: list[Any] = []
    card = Path("data/pair/card.json").absolute()
    params = Path("params.yaml").absolute()
    monkeypatch.chdir(tmp_path)

    def make_pair(folder: Path, seed: int, design: Design) -> None:
        done.append((seed, design))
        (folder / "card.json").write_text("another pair")

    def run_stages(clone: Path, settings: str) -> None:
        (clone / "params.yaml").write_text(settings)
        own = load_params(clone / "params.yaml")
        for file in (*own.prepare.train, *own.prepare.validation, *own.prepare.test):
            assert (clone / file.path).read_text()
        done.append((own.seed, own.label.method, [*own.iterations]))
        answers = {
            "1": RUNS["1 by suffix" if own.label.method == "suffix" else "1"],
            "2": RUNS["2"],
        }
        last = max(own.iterations)
        write(clone / paths.RIVALS / "outcomes.parquet", RIVALS)
        write(clone / paths.answers(int(last)) / "outcomes.parquet", answers[last])
        write_json(made(clone / paths.report(2) / paths.DEPLOYED), {"rule": str(DEPLOYED)})
        labels = [{"case": case, "label": n} for case, n in (("contested", 0), ("contested", 1))]
        labels += [{"case": "slm_right", "label": 1}]
        rows = [dict.fromkeys(PREFERENCE.names) | row for row in labels]
        write(clone / paths.preferences(int(last)), pa.Table.from_pylist(rows))

    copyfile(card, made(Path("data/pair/card.json")))
    copyfile(params, "params.yaml")
    copyfile(card, made(Path("work/one/data/pair/card.json")))
    monkeypatch.setattr(module, "make_pair", make_pair)
    monkeypatch.setattr(module, "run_stages", run_stages)
    return done


def made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, made(path))


def test_a_pair_runs_with_one_iteration_with_two_and_by_suffix(ran: list[Any]) -> None:
    found = measured(STUDY, Subject(seed=7), Path("work/one"))
    assert ran == [(7, "auto", ["1"]), (7, "auto", ["1", "2"]), (7, "suffix", ["1"])]
    assert found["fatal"] == 0.5
    assert found["iteration 2 above 1"]["change"][0] == pytest.approx(19 / 25 - 1)
    assert found["rollouts above suffix"]["change"][0] == pytest.approx(25 / 16 - 1)


def test_a_pair_is_pretrained_if_it_says_so(ran: list[Any]) -> None:
    subject = Subject(seed=7, pretraining=9, design={"openings": 4})
    measured(STUDY, subject, Path("work/one"))
    assert ran[0] == (9, Design(openings=4))


def test_a_study_continues_names_what_did_not_run_and_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def measure(_: Pairs, subject: Subject, clone: Path) -> dict[str, Any]:
        tried.append(clone.name)
        if subject.seed == 2:
            raise CalledProcessError(1, "dvc")
        return unit(-subject.seed / 10, 0.01)

    monkeypatch.setattr(module, "measured", measure)
    subjects = {name: Subject(seed=seed) for name, seed in (("a", 1), ("b", 2), ("c", 3))}
    study, target = STUDY.model_copy(update={"pairs": subjects}), tmp_path / "pairs.json"
    pairs(study, tmp_path, target)
    assert tried == ["a", "b", "c"]
    assert [*read_json(target)["pairs"]] == ["a", "c"]
    text = target.with_suffix(".md").read_text()
    assert "2 pairs. Not run: b." in text
    assert "| preferences above agreement | -0.2000 [" in text
    assert text.count("\n| a |") == text.count("\n| c |") == 1
    assert target.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "b: Command 'dvc'" in capsys.readouterr().out
    pairs(study, tmp_path, target)
    assert tried == ["a", "b", "c", "b"]
    content = read_json(target)
    del content["pairs"]["c"]["audits above none"]  # as if it were compared since then
    write_json(target, content)
    pairs(study, tmp_path, target)
    assert tried[4:] == ["b", "c"]


def test_a_pair_of_an_earlier_commit_stays_until_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Pairs, subject: Subject, clone: Path) -> dict[str, Any]:
        if subject.seed == 2:
            raise CalledProcessError(1, "dvc")
        return unit(-0.1, 0.01)

    monkeypatch.setattr(module, "measured", measure)
    subjects = {name: Subject(seed=seed) for name, seed in (("a", 1), ("b", 2))}
    study, target = STUDY.model_copy(update={"pairs": subjects}), tmp_path / "pairs.json"
    old = {key: value for key, value in unit(-0.3, 0.01).items() if key != REGRET}
    write_json(target, {"pairs": {"a": old, "b": old}})
    pairs(study, tmp_path, target)
    rows = [line.split(" | ") for line in target.with_suffix(".md").read_text().splitlines()]
    counts = {row[0]: row[2] for row in rows if len(row) == 5}
    assert counts["| preferences above agreement"] == "2"
    assert counts[f"| {REGRET}"] == "1"
    assert [row[0] for row in rows[-2:]] == ["| a", "| b"]
    assert len(rows[-1]) == len(rows[-2])
