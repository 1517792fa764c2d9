"""The section `workers` of `params.yaml`: who runs the parts of a stage."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from citer.checked import Section


def _once(devices: tuple[int, ...] | Literal["auto"]) -> tuple[int, ...] | Literal["auto"]:
    for device in () if devices == "auto" else devices:
        if devices.count(device) > 1:
            raise ValueError(f"{device} is listed twice")
    return devices


Number = Annotated[int, Field(ge=0, lt=1024)]
Devices = Annotated[
    Literal["auto"] | Annotated[tuple[Number, ...], Field(strict=False, min_length=1)],
    AfterValidator(_once),
]


class WorkerParams(Section):
    """Who runs the parts of a stage. No result depends on it, so no stage of DVC names it.

    executor: `local`, this machine; `ray`, a cluster (extra `citer[ray]`)
    devices: numbers of GPUs, with one process for each; `auto`: all visible ones
    address: of the Ray cluster
    stages: how many independent stages run at the same time
    """

    executor: Literal["local", "ray"] = "local"
    devices: Devices = "auto"
    address: Annotated[str, Field(min_length=1, max_length=200)] = "auto"
    stages: Annotated[int, Field(gt=0, le=64)] = 1
