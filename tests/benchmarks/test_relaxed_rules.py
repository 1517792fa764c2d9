"""Rules that change the text: heads of three seeds, real bytes, the cost at shares of the LLM's."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import relaxed
from benchmarks.exact import asked
from benchmarks.relaxed import ALL, GROUPS, HEADS, SEEDS, Answers, study
from citer.config.params import DecodeParams, Params, ScoreParams, load_params
from citer.data.problems import write_problems
from citer.data.tasks.grading import grade
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, top_probability
from citer.evaluation.cost import Prices
from citer.evaluation.sweep import request
from citer.models.pair import load_pair
from citer.rule import LLM, SLM, Rule
from citer.stages import label, paths, router0, score_llm, score_slm
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json
from tests.stages.sections import with_section
from tests.taught import make_taught_pair, problems

QUESTIONS = 4


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Params]:
    """A project with labels, whose LLM has some of the test questions right."""
    folder, taught = tmp_path_factory.mktemp("labelled"), problems(12)
    shipped = load_params(Path(__file__).parents[2] / "params.yaml")
    sizes = {"decode": DecodeParams(slots=8, max_new_tokens=20)}
    params = shipped.model_copy(update=sizes | {"score": ScoreParams(batch_tokens=600), "seed": 0})
    params = with_section(params, "train", batch_size=16)
    rules = {"llm_fractions": (0.0, 0.2, 1.0), "risks": (0.4,), "audits": (0.5, 1.0)}
    params = with_section(params, "evaluate", gammas=(4,), **rules)
    with chdir(folder):
        pair = make_taught_pair(Path("data/pair"), taught)
        shutil.copytree(pair.slm, paths.SLM)
        test, learnt = paths.problems("test"), paths.referenced("preference")
        write_problems(test, [replace(each, split="test") for each in taught], {})
        write_problems(learnt, [replace(each, split="preference") for each in taught], {})
        for stage in (score_llm, score_slm, router0):
            stage.run(params)
        label.run(params, 1)
    return folder, params


@pytest.fixture
def project(
    labelled: tuple[Path, Params], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Params:
    """Enter this project."""
    folder, params = labelled
    monkeypatch.chdir(shutil.copytree(folder, tmp_path, dirs_exist_ok=True))
    monkeypatch.setattr(relaxed, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(relaxed, "PART", 2)
    return params


def test_bytes_and_losses_are_those_of_the_engine(project: Params, tmp_path: Path) -> None:
    study(project, tmp_path / "work", "own", QUESTIONS)
    found = read_json(tmp_path / "results/own.json")
    seeds = {(row["seed"], Rule.parse(row["rule"]).by) for row in found["rules"]}
    own = range(project.seed, project.seed + SEEDS)
    assert {(seed, by) for seed in own for by in HEADS} <= seeds
    assert {by for seed, by in seeds if seed == ALL} == {"", "probability"}

    pair = load_pair(finetuned_pair(project), project.pair)
    known = {each.problem_id: each for each in asked(project, "test")[:QUESTIONS]}
    requests = [request(each, pair) for each in known.values()]

    def decoded(policy: Policy) -> tuple[float, list[bool]]:
        def right(answer: Answer) -> bool:
            text = pair.text(answer.token_ids)
            return not answer.truncated and grade(known[answer.key], text)

        engine = Engine(pair, 1, project.decode.max_new_tokens)
        answers = {each.key: each for each in engine.decode(requests, policy)}
        moved = Prices.of(pair).moved(engine.slm_work, engine.llm_work)
        return moved, [right(answers[key]) for key in known]

    alone, llm = decoded(LLM_ALONE)
    rows = [row for row in found["rules"] if row["seed"] == ALL]
    for row in rows:
        rule = Rule.parse(row["rule"])
        if rule in (SLM, LLM) or rule.by != "probability":
            continue
        moved, routed = decoded(Policy(top_probability, rule))
        assert row["b1"] == pytest.approx(moved / alone, abs=1e-4)
        lost = sum(one and not other for one, other in zip(llm, routed, strict=True))
        assert row["lost"] == lost
        assert not (rule.exact and lost)
    assert {Rule.parse(row["rule"]) for row in rows} >= {SLM_ALONE.rule, LLM}


def test_more_questions_ask_only_these(
    project: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(project, tmp_path / "work", "own", 2)
    first = asked(project, "test")[:2]
    was = Engine.sweep

    def new_only(
        engine: Engine, requests: Iterable[Request], policies: Sequence[Policy]
    ) -> Iterator[Answer]:
        listed = [*requests]
        assert not {each.key for each in listed} & {each.problem_id for each in first}
        return was(engine, listed, policies)

    monkeypatch.setattr(Engine, "sweep", new_only)
    study(project, tmp_path / "work", "own", QUESTIONS)
    assert (tmp_path / "results/own.md").read_text().startswith(f"{QUESTIONS} questions")


def test_a_group_costs_what_a_mix_of_its_rules_costs() -> None:
    bare, audited = Rule("score", 0.5, by="co_llm"), Rule("score", 0.5, 0.5, by="co_llm")
    rules = [SLM, LLM, bare, bare, audited, audited, Rule("risk", 0.5, 1.0, "probability")]
    seeds = [ALL, ALL, 17, 18, 17, 18, ALL]
    right_V, cost_V = [20, 80, 50, 60, 76, 76, 80], [0.1, 1.0, 0.2, 0.3, 0.3, 0.5, 0.6]
    correct_VQ = np.array([[n < right for n in range(100)] for right in right_V], float)
    right_RV, cost_RV = (np.array([each] * 3, float) for each in (right_V, cost_V))
    answers = Answers(seeds, rules, correct_VQ, right_RV, cost_RV, {"b8": cost_RV[0]})

    def of(name: str) -> tuple[str, relaxed.Lines]:
        return name, answers.frontiers(GROUPS[name])

    name, lines = of("likelihood, any audit below 1")
    row = answers.group(name, lines)
    assert row["95%, by seed"] == "0.300, 0.500"  # 76 of 80 right, by one rule each
    assert row["95%"][0] == row["95%, b8"] == pytest.approx(0.4)
    assert answers.cost(lines, 0.9)[0] == pytest.approx(0.2 + 0.1 * 22 / 26)  # 72 right, by a mix
    both = of("all that change the text"), of("the LLM's text, by certainty")
    exact = 0.1 + 0.5 * 56 / 60  # a mix of the SLM alone and the exact rule
    assert answers.beside(*both)["above at 95%"][0] == pytest.approx(0.4 / exact - 1)

    by_cost = [*answers.rules(0.05)]
    assert [row["b1"] for row in by_cost] == sorted(cost_V)
    assert {row["lost"] for row in by_cost if row["rule"] == str(audited)} == {4}
