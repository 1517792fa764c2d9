"""A stage builds the tokenizer of a model folder, and reads or hashes each file, at most once."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from citer.config.params import Params
from citer.data.problems import read_problems, write_problems
from citer.models import folder, weights
from citer.models.folder import ModelFolder
from citer.rule import Rule
from citer.serving.generate import generate
from citer.stages import (
    choose,
    evaluate,
    finetune,
    label,
    paths,
    probe,
    references,
    rivals,
    router0,
    score_llm,
    score_slm,
    transcribe,
)
from citer.stages import train as train_stage
from citer.storage import tables as io
from citer.storage.schema import SPLITS
from tests.stages.sections import with_section

Reads = Counter[tuple[str, str]]
MODELS = ("data/models/slm", "data/pair/llm", "data/pair/slm")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count (kind, file or folder) in the functions that really read a model folder."""
    counts: Reads = Counter()

    def count(owner: object, name: str, kind: str, place: int = 0) -> None:
        read = getattr(owner, name)

        def counted(*args: object, **kwargs: object) -> object:
            if str(args[place]).startswith(MODELS):
                counts[kind, str(args[place])] += 1
            return read(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(PreTrainedTokenizerFast, "from_pretrained", "tokenizer")
    count(io, "_feed", "hash", place=1)
    count(folder, "read_as", "settings")
    count(weights, "safe_open", "header")
    return counts


def problems_in_every_split() -> None:
    rows = read_problems(paths.referenced("preference"))
    for split in SPLITS:
        count = len(rows) if split == "preference" else 4
        own = [replace(row, split=split) for row in rows[:count]]
        write_problems(paths.problems(split), own, {})


def small(params: Params) -> Params:
    few = {"llm_floor": 0.0, "risks": (0.5,), "audits": (1.0,)}
    steps = {"epochs": 0.01, "batch_size": 2, "deepspeed": "off", "processes": 1}
    params = with_section(with_section(params, "evaluate", **few), "finetune", **steps)
    params = with_section(params, "answer", slots=2, max_new_tokens=12)
    return with_section(params, "decode", max_new_tokens=12)


def stages(params: Params) -> dict[str, tuple[Callable[[], None], int]]:
    """Yield every stage that reads models, in order, with the number of tokenizers it builds."""
    source = Path("questions.jsonl")
    source.write_text('{"problem": "What is 1 + 1?"}\n')
    answer = partial(generate, params, paths.router(1), source, Path("answers.jsonl"))
    return {
        "probe": (partial(probe.run, params), 2),
        "references": (partial(references.run, params), 0),
        "finetune": (partial(finetune.run, params), 1),
        "score_llm": (partial(score_llm.run, params), 2),
        "score_slm": (partial(score_slm.run, params), 2),
        "router0": (partial(router0.run, params), 1),
        "label": (partial(label.run, params, 1), 2),
        "train": (partial(train_stage.run, params, 1), 0),
        "rivals": (partial(rivals.run, params), 2),
        "evaluate": (partial(evaluate.run, params, 1), 2),
        "choose": (partial(choose.run, params, 1), 0),
        "transcribe": (partial(transcribe.run, params, 1), 2),
        "generate": (partial(answer, rule=Rule("score", 0.5)), 2),
    }


def test_every_stage_reads_each_model_folder_once(project: Params, reads: Reads) -> None:
    problems_in_every_split()
    shutil.rmtree(paths.SLM)  # `finetune` makes another
    for name, (run, tokenizers) in stages(small(project)).items():
        reads.clear()
        run()
        built = [read for read in reads if read[0] == "tokenizer"]
        assert len(built) == tokenizers, name
        assert {read: count for read, count in reads.items() if count > 1} == {}, name


def test_the_counters_see_a_second_read(project: Params, reads: Reads) -> None:
    for _ in range(2):
        model = ModelFolder(paths.SLM)
        assert model.tokenizer_parts
        assert model.digest
        assert model.stored
    assert {kind for kind, _ in reads} == {"tokenizer", "hash", "settings", "header"}
    assert set(reads.values()) == {2}


def test_a_new_object_sees_a_changed_folder(project: Params) -> None:
    before = ModelFolder(paths.SLM)
    known = before.digest
    weights_file = paths.SLM / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-1] + b"\1")
    assert before.digest == known
    assert ModelFolder(paths.SLM).digest != known
