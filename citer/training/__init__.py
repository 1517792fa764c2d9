"""Train models: the SLM on references, and the heads of a router on labels."""
