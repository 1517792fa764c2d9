"""Stages whose LLM runs behind a server."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from citer.cli.main import call
from citer.config.params import Params
from citer.errors import TemporaryError
from citer.models.pair import Pair
from citer.rule import Rule
from citer.stages import label, paths, score_llm
from citer.storage.schema import LLM_TOKEN, PREFERENCE
from citer.storage.tables import PARTIAL, read_table
from tests.completions import Completions, serving
from tests.stages.conftest import ROOT
from tests.stages.sections import with_section


@pytest.fixture
def completions(taught_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Completions]:
    monkeypatch.setattr("citer.models.served.sleep", lambda _: None)
    with serving(Completions(taught_pair.llm, taught_pair.tokenizer)) as running:
        yield running


@pytest.fixture
def visiting(scored: Params) -> Params:
    """A project whose rollouts visit the LLM."""
    return with_section(scored, "label", rule=Rule.parse("every 4 audit 0.1"))


def served(params: Params, completions: Completions) -> Params:
    return with_section(params, "pair", llm_url=completions.url)


def labels(params: Params) -> pa.Table:
    label.run(params, 1)
    return read_table(paths.preferences(1), PREFERENCE)


def tokens() -> pa.Table:
    return pa.concat_tables(read_table(p, LLM_TOKEN) for p in sorted(paths.LLM_TOKENS.iterdir()))


def test_the_scores_are_those_of_the_llm_here(scored: Params, completions: Completions) -> None:
    here = tokens().to_pydict()
    for path in paths.LLM_TOKENS.iterdir():
        path.unlink()
    score_llm.run(served(scored, completions))
    there = tokens().to_pydict()
    logprobs = there.pop("llm_logprob_gt")
    assert logprobs == pytest.approx(here.pop("llm_logprob_gt"), abs=1e-4)
    assert there == here


@pytest.mark.parametrize("method", ["auto", "suffix"])
def test_the_labels_are_those_of_the_llm_here(
    visiting: Params, completions: Completions, method: str
) -> None:
    visiting = with_section(visiting, "label", method=method)
    here = labels(visiting).to_pydict()
    there = labels(served(visiting, completions)).to_pydict()
    assert there.pop("fall") == pytest.approx(here.pop("fall"), abs=1e-3)
    assert there == here
    assert len(completions.asked) > 10


def test_a_stage_whose_server_is_lost_resumes(visiting: Params, completions: Completions) -> None:
    params = served(visiting, completions)
    whole = labels(params)
    asked = len(completions.asked)
    paths.preferences(1).unlink()
    completions.dies_after = 2 * asked - 2  # almost at the end
    with pytest.raises(TemporaryError, match="no answer"):
        label.run(params, 1)
    assert not paths.preferences(1).exists()
    completions.dies_after = None
    assert labels(params).equals(whole)
    resumed = len(completions.asked) - 2 * asked + 2
    assert 0 < resumed < asked / 2
    assert not list(PARTIAL.rglob("*.parquet"))


def test_a_server_that_is_down_ends_a_command_with_status_1(
    project: Params, completions: Completions, capsys: pytest.CaptureFixture
) -> None:
    shipped = (ROOT / "citer/config/params.yaml").read_text()
    Path("params.yaml").write_text(shipped.replace("llm_url: null", f"llm_url: {completions.url}"))
    completions.dies_after = 0
    assert call(["score_llm"]) == 1
    *warnings, line = capsys.readouterr().err.splitlines()
    assert all("; next attempt in " in warning for warning in warnings)
    assert line.startswith(f"citer: {completions.url}: no answer (")
    assert not list(paths.LLM_TOKENS.glob("*.parquet"))
