"""The section `workers` of `params.yaml`: who runs the parts of a stage."""

from typing import ClassVar, Literal

from citer.sections import Section


class WorkerParams(Section):
    """Who runs the parts of a stage. No result depends on it, so no stage of DVC names it.

    executor: `local`, this machine; `ray`, a cluster (extra `citer[ray]`)
    """

    REMOVED: ClassVar = {
        "address": "RAY_ADDRESS in the environment takes its place",
        "stages": "stages run one after another, each on all devices",
        "hostfile": "all finetune.processes run on this machine",
        "devices": "CUDA_VISIBLE_DEVICES in the environment takes its place",
    }

    executor: Literal["local", "ray"] = "local"
