"""Tiny random models in float64: one of each model type, and of each setting that a type may have.

Windows are shorter than the tests' rows.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 0,
    "sliding_window": None,
}
WINDOW = {"sliding_window": 7}
SWITCHED = WINDOW | {"use_sliding_window": True, "max_window_layers": 1}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 8.0}
YARN = LINEAR | {"rope_type": "yarn", "original_max_position_embeddings": 32}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
GEMMA3 = WINDOW | {"sliding_window_pattern": 2, "query_pre_attn_scalar": 5}
CASES: dict[str, dict[str, object]] = {
    "llama": {},
    "llama, llama3": {"rope_parameters": LLAMA3},
    "llama, linear": {"rope_parameters": LINEAR},
    "llama, yarn": {"rope_parameters": YARN},
    "mistral": {},
    "mistral, window": WINDOW,
    "ministral": WINDOW | {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "qwen2": {},
    "qwen2, window": SWITCHED,
    "qwen3": {},
    "qwen3, window": SWITCHED,
    "smollm3": {},
    "smollm3, window": SWITCHED | {"no_rope_layers": [1, 0, 0, 1, 1]},
    "gemma3_text": GEMMA3,
    "gemma3_text, linear": GEMMA3 | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "phi3": {},
    "phi3, window, partial": WINDOW | {"partial_rotary_factor": 0.75},
}


def network(case: str, vocab_size: int = 64) -> PreTrainedModel:
    """Build the model of a case of `CASES`. Its weights, norms included, are random."""
    torch.manual_seed(0)
    settings = SIZES | CASES[case]
    config = AutoConfig.for_model(case.split(",")[0], vocab_size=vocab_size, **settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    for weight in model.requires_grad_(False).parameters():
        weight.normal_(std=0.3)
    return model
