"""The section `workers` of `params.yaml`: who runs the parts of a stage."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from citer.sections import LocalPath, Section


class WorkerParams(Section):
    """Who runs the parts of a stage. No result depends on it, so no stage of DVC names it.

    executor: `local`, this machine; `ray`, a cluster (extra `citer[ray]`)
    stages: how many independent stages run at the same time
    hostfile: where the ranks of finetune run (`citer.training.launch`); by default all of them here
    """

    REMOVED: ClassVar = {
        "address": "RAY_ADDRESS in the environment takes its place",
        "devices": "CUDA_VISIBLE_DEVICES in the environment takes its place",
    }

    executor: Literal["local", "ray"] = "local"
    stages: Annotated[int, Field(gt=0, le=64)] = 1
    hostfile: LocalPath | None = None
