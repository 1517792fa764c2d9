"""The stages `rivals`, `evaluate` and `report` where the LLM's answers are the references."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from citer.config.params import Params
from citer.data.problems import read_problems, write_problems
from citer.errors import InputError
from citer.evaluation.measure import FIDELITY
from citer.evaluation.study import Study
from citer.executors.base import InLine
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.stages import evaluate, paths, rivals
from citer.storage.tables import read_json
from tests.stages.conftest import run_all, run_router, write_routers
from tests.stages.sections import with_section
from tests.studied import llm_writes
from tests.taught import make_taught_pair, problems

SPLITS = ("validation", "test")


@pytest.fixture(scope="module")
def taught_pair(tmp_path_factory) -> Path:
    return make_taught_pair(tmp_path_factory.mktemp("taught"), problems(6)).slm.parent


@pytest.fixture
def faithful(params: Params, taught_pair: Path) -> Params:
    """Enter a project with a taught pair, whose questions have the LLM's answers alone."""
    shutil.rmtree(paths.SLM)
    shutil.copytree(taught_pair / "slm", paths.SLM)
    taught = with_section(params, "pair", llm=str(taught_pair / "llm"))
    taught = with_section(taught, "evaluate", llm_floor=1)
    taught = with_section(taught, "decode", max_new_tokens=40)
    write_routers(taught)
    write_answers(taught)
    return taught


def write_answers(params: Params) -> None:
    """Write what the stage `references` would: the LLM's finished answers."""
    pair = load_pair(PairFolder(paths.SLM, Path(params.pair.llm)), params.pair)
    study = Study(InLine(), pair, [], [], [], FIDELITY, params, Path("partial"))
    written = [(problem, *llm_writes(study, problem)) for problem in problems(6)]
    rows = [
        replace(problem, answer=None, reference=text, written_by="llm")
        for problem, text, truncated in written
        if not truncated
    ]
    for split in SPLITS:
        own = [replace(p, problem_id=f"{split}-{p.problem_id}", split=split) for p in rows]
        write_problems(paths.referenced(split), own, {})


def test_no_report_calls_a_fidelity_an_accuracy(faithful, capsys):
    files = run_all(faithful)
    printed = capsys.readouterr().out
    assert printed.count("evaluate.llm_floor does not apply") == 1
    assert "there are 6 questions, too few to certify a rule that may change an answer" in printed
    assert "LLM 100.0% faithful, 0.0% cut off" in printed
    assert "unstable" not in printed
    assert "audited 2: no rule cheaper than the LLM keeps P(answer differs from" in printed
    for name, content in files.items():
        if name.endswith((".md", ".json", ".csv")):
            assert b"accuracy" not in content, name
    metrics = files["data/summary/metrics.json"]
    assert metrics.count(b'"fidelity"') > 10
    for folder in (paths.RIVALS, paths.report(1)):
        assert "fidelity" in pq.read_schema(folder / "points.parquet").names


def test_stored_answers_that_the_llm_does_not_repeat_are_reported(faithful, capsys):
    first, *others = read_problems(paths.referenced("validation"))
    write_problems(paths.referenced("validation"), [replace(first, reference="No."), *others], {})
    rivals.run(faithful)
    assert "validation: 16.7% of the LLM's answers differ from its st" in capsys.readouterr().out


def test_the_llm_answers_alone_if_all_candidates_lose_too_much(faithful, monkeypatch):
    monkeypatch.setattr("citer.evaluation.choice.MOST", -1)  # each rule loses more
    hopeless = with_section(faithful, "evaluate", candidates=("entropy", "citer"))
    rivals.run(hopeless)
    run_router(hopeless, 1)
    deployed = read_json(paths.report(1) / paths.DEPLOYED)
    assert (deployed["method"], deployed["rule"]) == ("llm", "score 1.0")


def test_questions_with_and_without_answers_are_refused_before_a_model_is_loaded(
    faithful, monkeypatch
):
    rows = read_problems(paths.referenced("test"))
    write_problems(paths.referenced("test"), [replace(row, answer="1") for row in rows], {})
    monkeypatch.setattr("citer.stages.asked.open_pair", None)
    for run in (lambda: rivals.run(faithful), lambda: evaluate.run(faithful, 1)):
        with pytest.raises(InputError, match=r"^validation problem .*: no answer, but test prob"):
            run()
