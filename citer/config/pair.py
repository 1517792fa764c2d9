"""The section `pair` of `params.yaml`: the two models and where they run."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from citer.data.prompts import ChatParams, PromptKind, StopStrings
from citer.sections import LocalPath, Section

Device = Literal["auto", "cpu", "cuda"]
Weights = Literal["stored", "int8"]
DEVICE = "CITER_DEVICE"  # an environment variable that overrides pair.device


def address(url: str) -> str:
    """Return the address of a server. Raises ValueError for another one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port raises ValueError
    except ValueError:
        host = None
    if "@" in url:  # not shown: it may have a password
        raise ValueError("expected http://HOST:PORT, without a name and a password")
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError(f"{url!r}: expected http://HOST:PORT")
    return url


class PairParams(Section):
    """The two models, and the form of prompts.

    With `llm_url`, the LLM's folder may lack the weights (`citer.models.served`). With
    `llm_device_map: auto`, accelerate distributes the LLM's layers over all GPUs, and the SLM and
    the router run on the last one.
    """

    slm: LocalPath
    llm: LocalPath
    device: Device
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    slm_weights: Weights = "stored"
    cuda_graphs: bool = True
    llm_device_map: Literal["auto"] | None = None
    llm_url: Annotated[str, AfterValidator(address)] | None = None
    prompt: PromptKind = "plain"
    chat: ChatParams = ChatParams()
    stop: StopStrings = ()

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        if self.llm_url and self.llm_device_map:
            raise ValueError("llm_device_map: the LLM runs at llm_url; expected only one of them")
        if self.prompt == "plain" and self.chat != ChatParams():
            raise ValueError("chat: not read by plain prompts; expected prompt: chat")
        return self
