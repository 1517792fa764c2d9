"""Routing inside vLLM: a proposer that drafts with the SLM, and audits as its acceptance rule."""
