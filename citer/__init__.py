"""citer: token-level routing between a small and a large language model (arXiv 2502.01976)."""
