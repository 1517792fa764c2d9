"""score_llm and score_slm: which shards are kept, and which are scored again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from citer.config.params import Params
from citer.data.problems import Problem, read_problems, write_problems
from citer.data.tokens import read_tokens
from citer.errors import InputError
from citer.models.folder import ModelFolder
from citer.stages import paths, score_llm, score_slm
from citer.storage.schema import LLM_TOKEN, slm_token
from citer.storage.tables import table_metadata
from tests.stages.conftest import COUNT, files, run_killed
from tests.stages.sections import with_section
from tests.taught import make_taught_pair

PREFERENCE = paths.referenced("preference")


def _stamps(folder: Path) -> dict[str, int]:
    """Return the time at which each file was written. A kept shard keeps its time."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def _problems_in(path: Path) -> set[str]:
    return set(pq.read_table(path, columns=["problem_id"])["problem_id"].to_pylist())


def _write(problems: list[Problem]) -> None:
    write_problems(PREFERENCE, problems, {})


def _assert_whole(problems: list[Problem]) -> None:
    """Check that the joined halves hold exactly the references of `problems`."""
    examples = ModelFolder(paths.SLM).prompts.encode_all(problems)
    read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)


def test_each_half_has_its_schema_its_metadata_and_every_reference(scored: Params) -> None:
    for folder, schema, name in (
        (paths.LLM_TOKENS, LLM_TOKEN, "llm"),
        (paths.SLM_TOKENS, slm_token(32), "slm"),
    ):
        assert len(list(folder.iterdir())) == 3, "12 problems, 5 a shard"
        for path in folder.iterdir():
            assert pq.read_schema(path).equals(schema)
            assert table_metadata(path)[name].keys() == {"id", "digest"}
            assert table_metadata(path)["dtype"] == "float32"
    _assert_whole(read_problems(PREFERENCE))


def test_scoring_again_keeps_every_shard(scored: Params, capsys: pytest.CaptureFixture) -> None:
    before = _stamps(paths.SLM_TOKENS), _stamps(paths.LLM_TOKENS)
    score_slm.run(scored)
    score_llm.run(scored)
    assert (_stamps(paths.SLM_TOKENS), _stamps(paths.LLM_TOKENS)) == before
    printed = capsys.readouterr().out
    assert f"score_slm: 0 problems scored; {COUNT} were already in data/tokens/slm\n" in printed


def test_scoring_from_scratch_gives_the_same_bytes(scored: Params) -> None:
    before = files(paths.SLM_TOKENS)
    shutil.rmtree(paths.SLM_TOKENS)
    score_slm.run(scored)
    assert files(paths.SLM_TOKENS) == before


def test_added_rows_score_only_themselves(scored: Params) -> None:
    before = _stamps(paths.SLM_TOKENS)
    problems = read_problems(PREFERENCE)
    added = [replace(p, problem_id=f"{p.problem_id}+", question="Else?") for p in problems[:2]]
    _write([added[0], *problems, added[1]])
    score_slm.run(scored)
    after = _stamps(paths.SLM_TOKENS)
    assert after.items() >= before.items()
    (new,) = after.keys() - before.keys()
    assert _problems_in(paths.SLM_TOKENS / new) == {p.problem_id for p in added}
    score_llm.run(scored)
    _assert_whole([added[0], *problems, added[1]])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda p: [replace(p[0], reference="\\boxed{1}"), *p[1:]], id="reference"),
        pytest.param(lambda p: [replace(p[0], question="What?"), *p[1:]], id="prompt"),
        pytest.param(lambda p: p[1:], id="removed"),
    ],
)
def test_a_changed_problem_replaces_its_shard_and_no_other(scored: Params, change) -> None:
    before = _stamps(paths.SLM_TOKENS)
    problems = read_problems(PREFERENCE)
    (stale,) = (p for p in before if problems[0].problem_id in _problems_in(paths.SLM_TOKENS / p))
    _write(change(problems))
    score_slm.run(scored)
    score_llm.run(scored)
    assert before.keys() - _stamps(paths.SLM_TOKENS).keys() == {stale}
    _assert_whole(change(problems))


def test_a_retrained_slm_leaves_the_llms_half_unchanged(scored: Params, tmp_path: Path) -> None:
    slm, llm = _stamps(paths.SLM_TOKENS), _stamps(paths.LLM_TOKENS)
    other = make_taught_pair(tmp_path / "other", read_problems(PREFERENCE), steps=2)
    shutil.copy(other.slm / "model.safetensors", paths.SLM)
    score_slm.run(scored)
    score_llm.run(scored)
    assert _stamps(paths.LLM_TOKENS) == llm
    assert _stamps(paths.SLM_TOKENS).keys() == slm.keys()
    assert not _stamps(paths.SLM_TOKENS).items() & slm.items()


def test_another_precision_scores_everything_again(scored: Params) -> None:
    score_slm.run(with_section(scored, "pair", dtype="float64"))
    stamps = {table_metadata(path)["dtype"] for path in paths.SLM_TOKENS.iterdir()}
    assert stamps == {"float64"}


def test_a_correction_of_the_code_scores_everything_again(
    scored: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("citer.labelling.scoring.code_digest", lambda stage: f"corrected {stage}")
    score_slm.run(scored)
    score_llm.run(scored)
    assert capsys.readouterr().out.count(f"{COUNT} problems scored; 0 were already in") == 2
    stamps = {table_metadata(path)["code"] for path in paths.LLM_TOKENS.iterdir()}
    assert stamps == {"corrected score_llm"}


def test_other_files_and_incomplete_shards_are_removed(scored: Params) -> None:
    before = files(paths.SLM_TOKENS)
    torn = sorted(paths.SLM_TOKENS.iterdir())[0]
    torn.write_bytes(torn.read_bytes()[:1000])
    (paths.SLM_TOKENS / "notes.txt").write_text("mine")
    (paths.SLM_TOKENS / f".{torn.name}.1.aside").write_bytes(b"half a shard")
    (paths.SLM_TOKENS / "folder").mkdir()
    shutil.copy(sorted(paths.SLM_TOKENS.glob("*.parquet"))[1], paths.SLM_TOKENS / "copy.parquet")
    shutil.copy(sorted(paths.LLM_TOKENS.iterdir())[0], paths.SLM_TOKENS / "foreign.parquet")
    score_slm.run(scored)
    assert files(paths.SLM_TOKENS) == before


def test_tokens_are_scored_again_with_another_eos(scored: Params) -> None:
    before = _stamps(paths.LLM_TOKENS)
    config = Path(scored.pair.llm) / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": 5}))
    score_llm.run(scored)
    assert set(_stamps(paths.LLM_TOKENS).values()).isdisjoint(before.values())


def test_a_reference_beyond_the_context_is_named(project: Params) -> None:
    first, *rest = read_problems(PREFERENCE)
    _write([*rest, replace(first, reference="So it goes. " * 500)])
    with pytest.raises(InputError, match=r"problem math-0: .* expected at most 1024, "):
        score_slm.run(project)


@pytest.mark.slow
def test_a_killed_stage_keeps_its_shards_and_ends_in_the_same_bytes(project: Params) -> None:
    score_slm.run(project)
    whole = files(paths.SLM_TOKENS)
    shutil.rmtree(paths.SLM_TOKENS)
    run_killed(project, "score_slm", module="citer.executors.tables", function="write_table")
    kept = _stamps(paths.SLM_TOKENS)
    assert len(kept) == 1
    score_slm.run(project)
    assert files(paths.SLM_TOKENS) == whole
    assert _stamps(paths.SLM_TOKENS).items() >= kept.items()
