"""Write data/code.json, by which DVC sees that the code of another stage has changed."""

from citer.closure import stage_digests
from citer.config import Params
from citer.io import write_json
from citer.stages import paths


def run(_: Params) -> None:
    """Write the digest of every stage's code and libraries (see `citer.closure`)."""
    write_json(paths.CODE, stage_digests())
