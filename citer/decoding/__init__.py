"""Routed decoding with two models, each with its own KV cache."""
