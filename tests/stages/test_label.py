"""label@k: the same table after any kill, and an error for inputs that do not match."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.torch import load_file, save_file

from citer.config.params import Params
from citer.data.problems import read_problems, write_problems
from citer.errors import InputError
from citer.models.folder import ModelFolder
from citer.rule import Rule
from citer.stages import label, paths, train
from citer.storage.schema import LLM_TOKEN, PREFERENCE
from citer.storage.tables import (
    PARTIAL,
    read_json,
    read_table,
    table_metadata,
    write_json,
    write_table,
)
from tests.stages.conftest import label_all, run_killed
from tests.stages.sections import with_section
from tests.taught import make_taught_pair

UNUSED = 2  # a token that neither model writes


def _labels(params: Params, iteration: int = 1) -> bytes:
    label.run(params, iteration)
    return paths.preferences(iteration).read_bytes()


def test_rows_follow_the_problem_table_and_end_with_eos(scored: Params) -> None:
    problems = read_problems(paths.referenced("preference"))
    write_problems(paths.referenced("preference"), problems[::-1], {})
    label.run(scored, 1)
    table = read_table(paths.preferences(1), PREFERENCE)
    prompts = ModelFolder(paths.SLM).prompts
    rows = zip(table["problem_id"].to_pylist(), table["position"].to_pylist(), strict=True)
    assert list(rows) == [
        (key, position)
        for key, example in prompts.encode_all(problems[::-1]).items()
        for position in range(len(example.reference_ids))
    ]


def test_the_file_names_its_inputs_and_settings(scored: Params) -> None:
    label.run(scored, 1)
    metadata = table_metadata(paths.preferences(1))
    assert metadata["template"] == ModelFolder(paths.SLM).prompts.digest
    assert metadata["slm"]["id"] == "data/models/slm"
    assert metadata["llm"]["id"] == "data/pair/llm"
    assert metadata["iteration"] == 1
    assert metadata["rule"] == str(scored.label.rule)


def test_two_runs_give_the_same_bytes_and_leave_nothing_behind(scored: Params) -> None:
    first = _labels(scored)
    paths.preferences(1).unlink()
    assert _labels(scored) == first
    assert not list(PARTIAL.rglob("*.parquet"))


def test_the_table_printed_counts_every_case(scored: Params, capsys: pytest.CaptureFixture) -> None:
    label.run(scored, 1)
    printed = {
        cells[0].strip(): cells[1].strip()
        for line in capsys.readouterr().out.splitlines()
        if len(cells := line.strip("│ ").split("│")) == 3
    }
    table = read_table(paths.preferences(1), PREFERENCE)
    cases = Counter(table["case"].to_pylist())
    assert {case: int(printed[case]) for case in cases} == cases
    assert int(printed["labels by rollout"]) == cases["contested"]
    assert int(printed["labelled 1"]) == sum(table["label"].to_pylist())


@pytest.mark.slow
def test_a_killed_stage_keeps_its_chunks_and_ends_in_the_same_bytes(scored: Params) -> None:
    whole = _labels(scored)
    paths.preferences(1).unlink()
    run_killed(scored, "label", 1, module="citer.executors.tables", function="write_table")
    assert not paths.preferences(1).exists()
    assert len(list(PARTIAL.rglob("*.parquet"))) == 1
    assert _labels(scored) == whole


def test_chunks_of_another_device_are_not_resumed(scored: Params) -> None:
    devices = (with_section(scored, "pair", device=device) for device in ("cpu", "cuda"))
    names = {label._digest(params, 1) for params in devices}
    assert len(names) == 2


@pytest.mark.parametrize("field", ["dtype", "tokenizer", "vocab_size"])
def test_halves_scored_in_different_ways_are_refused(scored: Params, field: str) -> None:
    for path in paths.LLM_TOKENS.iterdir():
        metadata = {**table_metadata(path), field: "another"}
        write_table(path, read_table(path, LLM_TOKEN), LLM_TOKEN, metadata)
    with pytest.raises(InputError, match=f"data/tokens/slm and data/tokens/llm: .* {field}: "):
        label.run(scored, 1)


def test_a_missing_half_is_named(scored: Params) -> None:
    shutil.rmtree(paths.LLM_TOKENS)
    with pytest.raises(InputError, match=r"data/tokens/llm: no shards"):
        label.run(scored, 1)


def _ends(params: Params, slm: list[int], llm: list[int]) -> None:
    folders = {paths.SLM: slm, Path(params.pair.slm): slm, Path(params.pair.llm): llm}
    for folder, eos_ids in folders.items():
        write_json(folder / "generation_config.json", {"eos_token_id": eos_ids})


def _labels_from_scratch(params: Params) -> pa.Table:
    label_all(params)
    return read_table(paths.preferences(1), PREFERENCE)


def test_the_order_of_eos_ids_is_that_of_the_slm(project: Params) -> None:
    _ends(project, [0, UNUSED], [UNUSED, 0])
    labels = _labels_from_scratch(project)
    _ends(project, [0], [0])
    assert _labels_from_scratch(project).equals(labels)


def test_an_llm_that_ends_with_another_eos_than_the_reference_counts_as_right(
    project: Params,
) -> None:
    problems = read_problems(paths.referenced("preference"))
    as_llm = [replace(problem, reference=f"{problem.reference[:-1]}!") for problem in problems]
    write_problems(paths.referenced("preference"), as_llm, {})
    labels = _labels_from_scratch(project)
    position_N, case_N = (labels[name].to_numpy() for name in ("position", "case"))
    assert "llm_right" in case_N[np.append(position_N[1:], 0) == 0], (
        "the LLM writes the reference's EOS"
    )
    weights = Path(project.pair.llm) / "model.safetensors"
    tensors = load_file(weights)
    tensors["lm_head.weight"][[0, UNUSED]] = tensors["lm_head.weight"][[UNUSED, 0]]
    save_file(tensors, weights, {"format": "pt"})
    _ends(project, [0, UNUSED], [0, UNUSED])
    assert _labels_from_scratch(project).equals(labels)


def test_rollouts_beyond_the_context_are_refused_at_once(scored: Params) -> None:
    with pytest.raises(InputError, match=r"problem math-0: .* expected at most 1024, "):
        label.run(with_section(scored, "decode", max_new_tokens=1000), 1)


def test_a_router_of_another_slm_is_refused_before_a_model_is_loaded(
    scored: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label, "open_pair", lambda *_: pytest.fail("a model was loaded"))
    card = read_json(paths.router(0) / "router.json")
    write_json(paths.router(0) / "router.json", card | {"slm": {"id": "x", "digest": "0"}})
    with pytest.raises(InputError, match=r"data/routers/0: made for the SLM x \(0\)"):
        label.run(scored, 1)


def test_tokens_of_another_slm_than_the_finetuned_one_are_refused(
    scored: Params, tmp_path: Path
) -> None:
    other = make_taught_pair(tmp_path / "other", read_problems(paths.referenced("preference")), 2)
    shutil.copy(other.slm / "model.safetensors", paths.SLM)
    with pytest.raises(InputError, match=r"data/tokens/slm: made for the SLM"):
        label.run(scored, 1)


def test_the_second_iteration_labels_both_families_under_the_first_router(scored: Params) -> None:
    # With room to finish a reference in another way.
    scored = with_section(scored, "decode", max_new_tokens=40)
    label.run(scored, 1)
    train.run(scored, 1)
    label.run(with_section(scored, "label", rule=Rule("score", 0.7)), 2)
    first, second = (read_table(paths.preferences(k), PREFERENCE) for k in (1, 2))
    assert second["case"].equals(first["case"])
    assert not second["label"].equals(first["label"])
    assert set(second["iteration"].to_pylist()) == {2}
    assert {key.split("-")[0] for key in second["problem_id"].to_pylist()} == {"math", "mc"}
    train.run(scored, 2)
    assert read_json(paths.router(2) / "router.json")["iteration"] == 2
