"""Finetuning of model types whose tensors differ: tied, fused, or with more norms."""

from pathlib import Path

import pytest

from citer.models.folder import ModelFolder
from citer.models.pair import load_model
from citer.training.sft import finetune
from tests.finetune.conftest import PARAMS, PLACEMENT, SEED
from tests.networks import network
from tests.tiny import MATH, MC


@pytest.mark.slow
@pytest.mark.parametrize("case", ["smollm3, window", "gemma3_text", "phi3, window, partial"])
def test_a_finetuned_model_of_the_type_can_be_loaded(base: ModelFolder, case: str) -> None:
    network(case, base.config.vocab_size).float().save_pretrained(base.path)
    params = PARAMS.model_copy(update={"epochs": 6})
    finetune(ModelFolder(base.path), [MATH, MC], Path("slm"), PLACEMENT, params, SEED)
    folder = ModelFolder(Path("slm"))
    folder.check()
    assert folder.digest != ModelFolder(base.path).digest
    load_model("slm", folder, PLACEMENT)  # compares its states with those of transformers
