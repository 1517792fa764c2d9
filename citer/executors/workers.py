"""The section `workers` of `params.yaml`: who runs the parts of a stage."""

from typing import Literal

from citer.sections import Section


class WorkerParams(Section):
    """Who runs the parts of a stage. No result depends on it, so no stage of DVC names it.

    executor: `local`, this machine; `ray`, a cluster (extra `citer[ray]`)
    """

    executor: Literal["local", "ray"] = "local"
