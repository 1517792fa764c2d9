"""Write data/code.json, by which DVC sees that the code of another stage has changed."""

from citer.config.params import Params
from citer.stages import paths
from citer.storage.code import stage_digests
from citer.storage.tables import write_json


def run(_: Params) -> None:
    """Write the digest of every stage's code and libraries (see `citer.storage.code`)."""
    write_json(paths.CODE, stage_digests())
