import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AutoModelForCausalLM
from transformers.loss import loss_utils

from citer.config.params import SHIPPED, FinetuneParams, PairParams, load_params
from citer.errors import InputError
from citer.models.folder import ModelFolder
from citer.storage.tables import PARTIAL
from citer.training import trainer
from citer.training.job import Job
from citer.training.sft import encode_rows, finetune, plan
from tests.finetune.conftest import PARAMS, PLACEMENT, SEED, halve, name_dtype
from tests.tasks import prompt_text
from tests.taught import problems
from tests.tiny import MATH, MC


def changed(**fields: object) -> FinetuneParams:
    return PARAMS.model_copy(update=fields)


def planned(pair: PairParams = PLACEMENT, **fields: object) -> Job:
    return plan(Path("slm"), pair, changed(**fields), SEED, 10)


def test_the_loss_covers_the_reference_and_one_eos_but_not_the_prompt(base: ModelFolder) -> None:
    (row,) = encode_rows(base, [MATH], max_length=512)
    tokenizer, eos_id = base.tokenizer, base.eos_ids[0]
    counted = [i for i, m in zip(row["input_ids"], row["completion_mask"], strict=True) if m]
    prompt_ids = row["input_ids"][: -len(counted)]
    assert tokenizer.decode(prompt_ids) == prompt_text(MATH)
    assert counted[-1] == eos_id
    assert tokenizer.decode(counted[:-1]) == MATH.reference


def test_the_first_loss_is_the_cross_entropy_of_the_completions_alone(base: ModelFolder) -> None:
    """The oracle sums the loss over unpadded rows, one by one, and divides by the tokens."""
    total, tokens = 0.0, 0
    network = AutoModelForCausalLM.from_pretrained(base.path)
    for row in encode_rows(base, [MATH, MC], max_length=512):
        ids = torch.tensor(row["input_ids"])
        start = row["completion_mask"].index(1)
        with torch.no_grad():
            logits_TV = network(ids[None]).logits[0]
        loss = F.cross_entropy(logits_TV[start - 1 : -1], ids[start:], reduction="sum")
        total, tokens = total + float(loss), tokens + len(ids) - start
    params = changed(epochs=1, batch_size=2)
    losses = finetune(base, [MATH, MC], Path("slm"), PLACEMENT, params, SEED)
    assert losses == [pytest.approx(total / tokens, rel=1e-5)]


def test_the_same_seed_gives_the_same_bytes_and_the_loss_falls(base: ModelFolder) -> None:
    rows = problems(12)
    losses = finetune(base, rows, Path("one"), PLACEMENT, PARAMS, SEED)
    assert finetune(base, rows, Path("two"), PLACEMENT, PARAMS, SEED) == losses
    assert len(losses) == 10
    assert losses[-1] < 0.8 * losses[0]
    one, two = (Path(name, "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_another_seed_gives_another_model(base: ModelFolder) -> None:
    rows = problems(12)
    for seed in (1, 2):
        finetune(base, rows, Path(str(seed)), PLACEMENT, changed(epochs=2 / 3), seed)
    one, two = (load_file(f"{seed}/model.safetensors") for seed in (1, 2))
    assert any(not torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_training_of_zero_epochs_does_not_change_the_model(base: ModelFolder, dtype: str) -> None:
    name_dtype(base, dtype)
    assert finetune(base, [MATH, MC], Path("slm"), PLACEMENT, changed(epochs=0), SEED) == []
    files, written = (
        load_file(folder / "model.safetensors") for folder in (base.path, Path("slm"))
    )
    assert files.keys() == written.keys()
    assert all(torch.equal(written[name], weight) for name, weight in files.items())
    names = {file.name for file in base.path.iterdir()}
    assert {file.name for file in Path("slm").iterdir()} == names


@pytest.mark.parametrize(
    ("epochs", "rows", "steps"),
    [(2.45, 3000, 230), (1, 64, 2), (3, 33, 6), (2.5, 32, 2), (0.1, 320, 1), (0, 3000, 0)],
)
def test_the_steps_follow_the_rows(epochs: float, rows: int, steps: int) -> None:
    assert changed(epochs=epochs, batch_size=32).steps(rows) == steps


def test_the_shipped_settings_have_as_many_steps_as_the_embedded_pair_needs() -> None:
    """230 is the number with which the results in docs/results.md were made."""
    params = load_params(SHIPPED)
    toy = params.prepare.toy
    assert toy
    assert params.finetune.steps(toy.sft * len(toy.tasks)) == 230


def test_only_the_weights_differ_from_the_base_model(base: ModelFolder) -> None:
    """No pickle, tokenizer or EOS setting of the trainer is written; the work folder is removed.

    Settings of sampling may contradict each other.
    """
    settings = {"eos_token_id": 0, "temperature": 0.6, "top_p": 0.9}  # without `do_sample`
    (base.path / "generation_config.json").write_text(json.dumps(settings))
    finetune(base, [MATH, MC], Path("slm"), PLACEMENT, changed(epochs=2, batch_size=2), SEED)
    files = {file.name: file.read_bytes() for file in base.path.iterdir()}
    written = {file.name: file.read_bytes() for file in Path("slm").iterdir()}
    assert written.pop("model.safetensors") != files.pop("model.safetensors")
    assert written == files
    assert not list((PARTIAL / "finetune").iterdir())


def test_weights_are_written_in_the_precision_of_the_base_model(base: ModelFolder) -> None:
    halve(base)
    finetune(base, [MATH, MC], Path("slm"), PLACEMENT, changed(epochs=2, batch_size=2), SEED)
    written = load_file("slm/model.safetensors")
    assert {weight.dtype for weight in written.values()} == {torch.bfloat16}


def test_the_longest_of_over_long_rows_is_refused_by_name(base: ModelFolder) -> None:
    long = [replace(MATH, problem_id=f"{n}", reference="and so on, " * n) for n in (100, 101)]
    with pytest.raises(InputError, match=r"^sft problem 101 of tiny: \d+ tokens .* at most 300"):
        finetune(base, [*long, MATH], Path("slm"), PLACEMENT, changed(max_length=300), SEED)


def test_a_diverged_training_is_refused_and_writes_nothing(base: ModelFolder) -> None:
    params = changed(learning_rate=1e38, epochs=3, batch_size=2)
    with pytest.raises(InputError, match=r"finetune.learning_rate: 1e\+38: .*diverged"):
        finetune(base, [MATH, MC], Path("slm"), PLACEMENT, params, SEED)
    assert not Path("slm").exists()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"processes": 2}, "finetune.processes: 2: needs DeepSpeed"),
        (
            {"zero": "3-offload"},
            "finetune.zero: 3-offload: needs DeepSpeed, expected 2 or finetune.deepspeed: on",
        ),
    ],
    ids=["processes", "zero 3"],
)
def test_a_cpu_trains_without_deepspeed_unless_it_is_on(
    fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        planned(deepspeed="auto", **fields)
    assert not planned(deepspeed="auto").deepspeed
    assert planned(deepspeed="on", **fields).deepspeed
    assert not planned(deepspeed="on").bf16


def test_a_cpu_trains_in_bfloat16_but_not_in_float16() -> None:
    for dtype, bf16 in {"float32": False, "bfloat16": True, "float16": False}.items():
        assert planned(PLACEMENT.model_copy(update={"dtype": dtype})).bf16 == bf16


def test_gradient_checkpointing_changes_no_loss(base: ModelFolder) -> None:
    rows = problems(12)
    kept = finetune(base, rows, Path("kept"), PLACEMENT, PARAMS, SEED)
    params = changed(gradient_checkpointing="on")
    again = finetune(base, rows, Path("again"), PLACEMENT, params, SEED)
    assert again != kept  # trl's loss over tiles rounds differently
    assert again == pytest.approx(kept, rel=1e-4)


def test_large_logits_are_computed_at_the_references_alone(
    base: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of logits that a loss reads are counted where transformers computes it."""
    read: list[int] = []
    whole = loss_utils.fixed_cross_entropy

    def counted(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        read.append(len(logits))
        return whole(logits, *args, **kwargs)

    monkeypatch.setattr(loss_utils, "fixed_cross_entropy", counted)
    params = changed(epochs=1, batch_size=2)
    [small] = finetune(base, [MATH, MC], Path("small"), PLACEMENT, params, SEED)
    monkeypatch.setattr(trainer, "LARGE", 0)
    [large] = finetune(base, [MATH, MC], Path("large"), PLACEMENT, params, SEED)
    assert large == pytest.approx(small, rel=1e-6)
    masks = [row["completion_mask"] for row in encode_rows(base, [MATH, MC], max_length=512)]
    kept = {at for mask in masks for at, own in enumerate(mask) if own}
    assert read == [2 * max(map(len, masks)), 2 * len(kept)]
    one, two = (load_file(f"{name}/model.safetensors") for name in ("small", "large"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-4, atol=1e-5)


def test_a_gpu_trains_under_deepspeed_in_the_pairs_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    whole = PLACEMENT.model_copy(update={"device": "auto"})
    half = whole.model_copy(update={"dtype": "bfloat16"})
    of_whole = planned(whole, deepspeed="auto", processes=2)
    assert of_whole.deepspeed
    assert not of_whole.bf16
    of_half = planned(half, deepspeed="auto", processes=2)
    assert of_half.bf16
    assert of_half.checkpointing
    assert not planned(half, gradient_checkpointing="off", deepspeed="auto").checkpointing
    with pytest.raises(InputError, match="expected at most 2, one per GPU"):
        planned(half, deepspeed="auto", processes=4)
    # trl refuses `nn.DataParallel`, which transformers takes for several GPUs.
    with pytest.raises(InputError, match=r"^finetune.deepspeed: off: 2 GPUs are visible; expected"):
        planned(whole, deepspeed="off")
