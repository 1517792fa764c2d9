"""The section `workers` of `params.yaml`: who runs the parts of a stage."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import PlainValidator, model_validator

from citer.errors import shown
from citer.sections import Section


def _devices(value: Any) -> Any:
    """Check a value of `devices`. YAML has lists, a frozen section has tuples."""
    if value == "auto":
        return value
    numbers = tuple(value) if isinstance(value, list | tuple) else ()
    if not numbers or any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(f"{shown(value)}: expected auto, or numbers of GPUs such as [0, 1]")
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise ValueError(f"{twice[0]} is listed twice")
    return numbers


Devices = Annotated[Literal["auto"] | tuple[int, ...], PlainValidator(_devices)]


class WorkerParams(Section):
    """Who runs the parts of a stage. No result depends on it, so no stage of DVC names it.

    executor: `local`, this machine; `ray`, a cluster (extra `citer[ray]`)
    devices: numbers of GPUs, with one process for each; `auto`: all visible ones
    """

    REMOVED: ClassVar = {
        "address": "RAY_ADDRESS in the environment takes its place",
        "stages": "stages run one after another, each on all devices",
        "hostfile": "all finetune.processes run on this machine",
    }

    executor: Literal["local", "ray"] = "local"
    devices: Devices = "auto"

    @model_validator(mode="after")
    def ray_has_its_own_devices(self) -> Self:
        if self.executor == "ray" and self.devices != "auto":
            raise ValueError("devices: ray uses all GPUs of its cluster; expected auto")
        return self
