"""Give every question the reference and the answer that later stages use."""

from shutil import copyfile

from citer.config import Params
from citer.io import replacing
from citer.schema import SPLITS
from citer.stages import paths


def run(_: Params) -> None:
    """Copy the problem tables: every reference is given."""
    with replacing(paths.REFERENCES) as aside:
        aside.mkdir()
        for split in SPLITS:
            copyfile(paths.problems(split), aside / paths.referenced(split).name)
