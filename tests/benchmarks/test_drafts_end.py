"""What ends the drafts of exact rules: choice on validation, the LLM's own text, real bytes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import exact
from benchmarks.exact import RISKS, SPLITS, Read, Scorer, Tried, compared, study
from citer.config.params import DecodeParams, Params, ScoreParams, load_params
from citer.data.problems import write_problems
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, routed
from citer.errors import InputError
from citer.evaluation.cost import Prices
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import load_pair
from citer.models.router import EXTRAS
from citer.rule import LLM, Rule
from citer.stages import paths
from citer.stages.folders import base_pair
from citer.storage.tables import read_json
from tests.taught import make_taught_pair, problems

PRICES = Prices(slm_weights=16, llm_weights=100, slm_kv=0, llm_kv=0)


def read(agrees: list[list[bool]], scores: list[list[float]]) -> Read:
    """Answers to as many questions; the largest probability is the score."""
    flat = [each for answer in scores for each in answer]
    feature_NF = np.zeros((len(flat), 4 + EXTRAS), np.float16)
    feature_NF[:, -EXTRAS + 2] = np.log(flat)
    starts = np.cumsum([0, *map(len, agrees)]).tolist()
    ids = [f"q{n}" for n in range(len(agrees))]
    longest = max(map(len, agrees))  # no draft follows it
    return Read(ids, [3] * len(ids), starts, np.concatenate(agrees), feature_NF, longest)


def probability(row_NF: np.ndarray) -> np.ndarray:
    return np.exp(row_NF[:, -EXTRAS + 2].astype(float))


def test_validation_chooses_and_test_shows_the_cost() -> None:
    ends = [True, True, True, False] * 3
    told = [0.9 if agrees else 0.05 for agrees in ends]
    blind = [0.6] * len(ends)  # here any threshold only counts
    split = {"preference": read([ends], [told]), "validation": read([ends] * 2, [told] * 2)}
    both = split | {"test": read([ends, ends], [told, blind])}
    scorer = Scorer("probability", RISKS, {probability: 0})
    heavy = Scorer("the same, and dear", RISKS, {probability: 16})
    own, dear = compared([scorer, heavy], both, PRICES)

    assert own["chosen"] == "risk 0.74"  # the first above .9 ** 3: three drafts, all stand
    rule = Rule("risk", 0.74, 1.0, "own")
    validation, test = (
        both[name].answers(probability(both[name].feature_NF)) for name in SPLITS[1:]
    )
    costs = [Tried.of(each, validation, PRICES).moved_Q.sum() for each in RISKS]
    assert Tried.of(rule, validation, PRICES).moved_Q.sum() == min(costs)
    assert Tried.of(rule, validation[:1], PRICES).moved_Q == [3 * (3 * 16 + 100)]
    alone = Tried.of(LLM, test, PRICES)
    assert alone.moved_Q.tolist() == [1200, 1200]
    cost, low, high = own["bytes"]
    assert cost == pytest.approx(Tried.of(rule, test, PRICES).in_batch(alone, exact.COLUMNS[0]))
    assert low < cost < high  # the two questions differ
    assert own["best on test"] <= cost
    assert own["above certainty"] == (0, 0, 0)
    assert dear["above certainty"][1] > 0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Enter a project after `prepare`, with a taught pair."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exact, "RESULTS", tmp_path / "results")
    taught = problems(18)
    make_taught_pair(Path("data/pair"), taught)
    for n, split in enumerate(SPLITS):
        own = [replace(each, split=split) for each in taught[6 * n : 6 * n + 6]]
        write_problems(paths.problems(split), own, {})
    shipped = load_params(Path(__file__).parents[2] / "params.yaml")
    changes = {
        "decode": DecodeParams(slots=4, max_new_tokens=20),
        "score": ScoreParams(batch_tokens=200),
        "train": shipped.train.model_copy(update={"batch_size": 16}),
    }
    return shipped.model_copy(update=changes)


def test_the_costs_are_those_of_the_engine_and_the_heads_can_serve(
    project: Params, tmp_path: Path
) -> None:
    study(project, tmp_path / "work", "own", None)
    rows = {
        row["drafts end by"]: row for row in read_json(tmp_path / "results/own.json")["scorers"]
    }
    assert [*rows] == [
        *("probability", "entropy", "count", "agree", "wide", "agree_logistic"),
        "a head that is never wrong",
    ]
    assert "best on test" in (tmp_path / "results/own.md").read_text()

    pair = load_pair(base_pair(project), project.pair)
    asked = [request(replace(each, split="test"), pair) for each in problems(18)[12:]]
    router = read_bundle(tmp_path / "work/own")[0]

    def decoded(rule: Rule) -> tuple[float, dict[str, tuple[int, ...]]]:
        engine = Engine(pair, 1, 20)
        policy = routed(router, rule) if rule != LLM else LLM_ALONE
        answers = {each.key: each.token_ids for each in engine.decode(asked, policy)}
        return Prices.of(pair).moved(engine.slm_work, engine.llm_work), answers

    alone, texts = decoded(LLM)

    def chosen(name: str, by: str = "") -> Rule:
        return replace(Rule.parse(rows[name]["chosen"].split(",")[0]), audit=1.0, by=by)

    moved, same = decoded(chosen("count"))
    assert same == texts
    assert rows["count"]["bytes"][0] == pytest.approx(moved / alone)
    assert decoded(chosen("agree", "agree"))[1] == texts


def test_a_second_study_asks_nothing_again(
    project: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(project, tmp_path / "work", "own", None)
    first = read_json(tmp_path / "results/own.json")

    def refuse(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(Engine, "sweep", refuse)
    study(project, tmp_path / "work", "own", None)
    assert read_json(tmp_path / "results/own.json") == first
    study(project, tmp_path / "work", "few", 2)
    few = read_json(tmp_path / "results/few.json")
    assert few["preference"].startswith("preference: 2 questions")
    assert few["scorers"][0] == first["scorers"][0]


def test_missing_questions_are_refused_before_a_model_is_loaded(
    project: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(exact, "open_pair", refuse)
    write_problems(paths.problems("validation"), problems(1), {})
    with pytest.raises(InputError, match=r"validation\.parquet: 1 questions, expected two or more"):
        study(project, tmp_path / "work", "own", None)
