"""The race of an untrained pair: what is compared, what is kept, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import untrained
from benchmarks.untrained import Measured, race, row
from citer.config.params import SHIPPED, DecodeParams, Params, load_params
from citer.data.problems import write_problems
from citer.errors import InputError
from citer.rule import Rule
from citer.stages import paths
from citer.storage.tables import read_json
from tests.taught import make_taught_pair, problems


def test_a_method_is_compared_by_sums_over_all_batches() -> None:
    llm = [Measured(2.0, 30, 2, 1, 1), Measured(6.0, 70, 1, 0, 1)]
    own = [Measured(1.0, 10, 2, 1, 1), Measured(1.0, 20, 2, 1, 0)]
    found = row("rule", own, llm)
    assert found["bytes"] == pytest.approx(0.3)
    ratio, low, high = found["seconds"]
    assert ratio == pytest.approx(2 / 8)
    assert (low, high) == pytest.approx((1 / 6, 1 / 2))  # resamples of one question alone
    assert (found["tokens"], found["right"], found["the LLM's text"]) == (4, 2, 1)
    both, theirs = Measured(2.0, 30, 4, 2, 1), Measured(8.0, 100, 3, 1, 2)
    batched = row("rule", [both], [theirs])
    assert batched["bytes"] == pytest.approx(0.3)
    assert (batched["tokens"], batched["right"], batched["the LLM's text"]) == (4, 2, 1)
    by_transformers = [each._replace(moved=None) for each in own]
    assert row("generate", by_transformers, llm)["bytes"] is None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Enter a project with a pair and four test questions, which get short answers."""
    monkeypatch.chdir(tmp_path)
    taught = problems(4)
    make_taught_pair(Path("data/pair"), taught, steps=1)
    write_problems(paths.problems("test"), [replace(each, split="test") for each in taught], {})
    short = DecodeParams(slots=4, max_new_tokens=4)
    return load_params(SHIPPED).model_copy(update={"decode": short})


def test_a_race_continues_where_it_ended(
    project: Params,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def measured(pair: object, methods: dict[str, object], batch: list[object]) -> object:
        asked.extend(untrained._ids(batch))
        return {name: Measured(len(asked), 1.0, 2, 1, 1) for name in methods}.items()

    monkeypatch.setattr(untrained, "_measured", measured)

    def ran(rule: str, questions: int) -> tuple[int, list[float]]:
        """Race, and return how many questions were asked, and the LLM's seconds by question."""
        asked.clear()
        race(project, [Rule.parse(rule)], questions, 1, None, tmp_path / "race")
        found = read_json(tmp_path / "race.json")
        assert found["questions"] == questions
        return len(asked), [own["LLM alone"][0] for _, own in found["measured"]]

    assert ran("every 2 audit 1", 2) == (2, [1, 2])
    assert ran("every 2 audit 1", 4) == (2, [1, 2, 1, 2])
    kept = (tmp_path / "race.json").read_bytes()
    race(project, [Rule.parse("every 2 audit 1")], 3, 1, None, tmp_path / "race")
    assert len(asked) == 2  # nothing is asked again, and nothing is lost
    assert (tmp_path / "race.json").read_bytes() == kept
    assert "all of these questions" in capsys.readouterr().out
    assert ran("every 3 audit 1", 4) == (4, [1, 2, 3, 4])


def test_a_batch_is_measured_against_the_llm_alone(project: Params, tmp_path: Path) -> None:
    race(project, [Rule.parse("every 2 audit 1")], 3, 2, None, tmp_path / "race")
    found = read_json(tmp_path / "race.json")
    alone, exact, _ = found["methods"]
    assert (alone["method"], alone["bytes"], alone["seconds"]) == ("LLM alone", 1, [1, 1, 1])
    assert alone["the LLM's text"] == exact["the LLM's text"] == 3
    assert alone["tokens"] == exact["tokens"] <= 3 * 4
    assert [len(ids) for ids, _ in found["measured"]] == [2, 1]


def test_a_rule_that_asks_a_head_and_missing_questions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for rule, complaint in (
        ("risk 0.7 audit 1 by stand", "no scorer `stand`"),
        ("every 3 audit 1", r"test\.parquet"),
    ):
        with pytest.raises(InputError, match=complaint):
            race(load_params(SHIPPED), [Rule.parse(rule)], 3, 1, None, tmp_path)
