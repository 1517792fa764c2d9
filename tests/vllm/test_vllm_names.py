"""The private names of vLLM that routing wraps, read from its source: no vLLM runs.

`VLLM_WHEEL=vllm-0.33.0-….whl pytest tests/vllm/test_vllm_names.py` reads another version.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.vllm.offline import PYTHON

WHEEL = os.environ.get("VLLM_WHEEL", "")
pytestmark = [
    *([] if WHEEL else [pytest.mark.vllm]),
    pytest.mark.skipif(not (WHEEL or PYTHON), reason="VLLM_WHEEL or VLLM_PYTHON: a vLLM to read"),
]
API, GPU = "vllm/entrypoints/openai", "vllm/v1/worker/gpu"
# The arguments that are passed or taken by place or name.
NAMES = {
    "vllm/engine/arg_utils.py EngineArgs.create_engine_config": "self",
    f"{API}/chat_completion/protocol.py ChatCompletionRequest.to_sampling_params": "self",
    f"{API}/completion/protocol.py CompletionRequest.to_sampling_params": "self",
    f"{API}/responses/protocol.py ResponsesRequest.to_sampling_params": "self",
    "vllm/v1/engine/async_llm.py AsyncLLM.generate": "self prompt sampling_params request_id",
    "vllm/v1/engine/async_llm.py AsyncLLM.do_log_stats": "self",
    "vllm/v1/engine/async_llm.py AsyncLLM.collective_rpc": "self method timeout args",
    "vllm/v1/engine/async_llm.py AsyncLLM.pause_generation": "self mode",
    "vllm/v1/engine/async_llm.py AsyncLLM.resume_generation": "self",
    f"{GPU}/model_runner.py GPUModelRunner.get_draft_model": "self",
    "vllm/v1/core/sched/scheduler.py Scheduler.__init__": "self vllm_config",
    "vllm/v1/core/sched/scheduler.py Scheduler.schedule": "self",
    "vllm/v1/core/sched/scheduler.py Scheduler.add_request": "self request",
    f"{GPU}/spec_decode/rejection_sampler.py RejectionSampler.__init__": "self sampler",
    f"{GPU}/spec_decode/rejection_sampler.py RejectionSampler.__call__": (
        "self logits input_batch draft_logits invalid_drafts"
    ),
    f"{GPU}/sample/sampler.py Sampler.add_request": "self req_idx sampling_params",
    f"{GPU}/sample/sampler.py Sampler.apply_sampling_params": (
        "self logits expanded_idx_mapping idx_mapping idx_mapping_np pos input_ids"
        " expanded_local_pos"
    ),
    f"{GPU}/spec_decode/speculator.py DraftModelSpeculator.compute_draft_logits": (
        "self hidden_states spec_step_idx"
    ),
    f"{GPU}/spec_decode/speculator.py DraftModelSpeculator.sample_draft": "self hidden_states",
    f"{GPU}/spec_decode/standalone_ar/speculator.py StandaloneARSpeculator.propose": (
        "self input_batch attn_metadata slot_mappings last_hidden_states aux_hidden_states"
        " num_sampled"
    ),
}
# What the worker imports or reads beside them.
WORDS = {
    "vllm/model_executor/model_loader/reload/inplace.py": [
        "def reload_weights(\n    vllm_config: VllmConfig,\n    model: nn.Module,\n    weights_",
        " | None,\n    weights_path: str | None,\n    is_checkpoint_format: bool,\n)",
    ],
    "vllm/config/speculative.py": [
        *("rejection_sample_method:", "draft_sample_method:", "use_local_argmax_reduction:"),
    ],
    "vllm/config/vllm.py": ['speculative_config.draft_sample_method != "probabilistic"'],
    "vllm/v1/core/sched/scheduler.py": ["in self.running", "request.spec_token_ids = []"],
    f"{GPU}/model_runner.py": ["RejectionSampler(", "num_speculative_tokens=num_spec_tokens"],
    f"{GPU}/spec_decode/__init__.py": ["standalone_ar.speculator import"],
    f"{GPU}/input_batch.py": [
        *("req_ids:", "idx_mapping:", "idx_mapping_np:", "expanded_idx_mapping:"),
        *("expanded_local_pos:", "input_ids:", "positions:", "logits_indices:"),
    ],
}


def source(file: str) -> str:
    if WHEEL:
        return ZipFile(WHEEL).read(file).decode()
    [found] = Path(PYTHON).parents[1].glob(f"lib/python*/site-packages/{file}")
    return found.read_text()


def arguments(file: str, owner: str, name: str) -> Iterator[str]:
    for each in ast.walk(ast.parse(source(file))):
        if isinstance(each, ast.ClassDef) and each.name == owner:
            methods = (own for own in each.body if getattr(own, "name", "") == name)
            for method in methods:
                assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from (one.arg for one in [*method.args.args, *method.args.kwonlyargs])


@pytest.mark.parametrize("place", NAMES)
def test_a_wrapped_method_takes_what_it_is_given(place: str) -> None:
    file, _, name = place.partition(" ")
    found = [*arguments(file, *name.split("."))]
    expected = NAMES[place].split()
    assert found[: len(expected)] == expected


@pytest.mark.parametrize("file", WORDS)
def test_what_is_read_is_there(file: str) -> None:
    text = source(file)
    assert [word for word in WORDS[file] if word not in text] == []
