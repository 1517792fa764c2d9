"""Router 0: the SLM's token always stands, so that the first iteration is like any other."""

from citer.config import Params
from citer.data.tokens import read_identity
from citer.models.bundle import write_bundle
from citer.models.router import Router
from citer.stages import paths


def run(params: Params) -> None:
    """Write a constant router for the pair that scored the tokens."""
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    write_bundle(paths.router(0), Router(mlp=None), identity | {"iteration": 0})
