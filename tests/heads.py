"""Heads of random weights, whose scores differ from token to token."""

import torch
from torch import nn

from citer.models.router import Head, Router, RouterMLP, features


def random_head(
    hidden_size: int, seed: int = 0, slope: float = 9.0, dtype: torch.dtype = torch.float32
) -> Head:
    """Make a head whose batch norms fit the features of a tiny pair, so that all have weight."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        mlp = RouterMLP(hidden_size, dropout=0.1)
        for norm in mlp.modules():
            if isinstance(norm, nn.BatchNorm1d):
                norm.momentum = None  # a plain mean over all features seen
        mlp(features(torch.randn(512, hidden_size), torch.randn(512, 300)))
    return Head(mlp.to(dtype).eval().requires_grad_(False), slope)


def random_router(
    hidden_size: int, seed: int = 0, slope: float = 9.0, dtype: torch.dtype = torch.float32
) -> Router:
    """Make a router of two different heads."""
    seeds = {"stand": seed, "agree": seed + 100}
    return Router(
        {name: random_head(hidden_size, part, slope, dtype) for name, part in seeds.items()}
    )
