"""Load the router and its SLM, and check that they belong to the LLM that vLLM serves."""

from pathlib import Path
from typing import Any, NamedTuple

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.bundle import check_identity, folder_identity, read_bundle, read_card
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_model
from citer.models.router import Router
from citer.models.size import ModelSize
from citer.serving.deployment import served_pair, stored_rule
from citer.vllm import KEY
from citer.vllm.settings import Served, Settings, parsed


class Engine(NamedTuple):
    """What vLLM serves. `changes`: settings by which it is not the model in the folder `llm`."""

    llm: str
    tokenizer: str
    dtype: str
    device: str
    changes: tuple[str, ...]


def engine_of(config: Any) -> Engine:
    """Read a VllmConfig."""
    model, changes = config.model_config, []
    if model.quantization and not getattr(model.hf_config, "quantization_config", None):
        changes.append(f"--quantization {model.quantization}")
    if config.lora_config:
        changes.append("--enable-lora")
    dtype = str(model.dtype).removeprefix("torch.")
    device = config.device_config.device_type
    return Engine(model.model, model.tokenizer, dtype, device, tuple(changes))


def read_settings(additional_config: dict[str, Any]) -> Settings:
    """Read the section `citer` of `--additional-config`. Raises InputError."""
    if KEY not in additional_config:
        expected = 'expected --additional-config \'{"citer": {"router": FOLDER}}\''
        raise InputError(f"no settings of citer, {expected}")
    return parsed(Settings, additional_config[KEY], f"--additional-config: {KEY}")


def read_served(settings: Settings) -> Served:
    """Read the router, and the rule of requests that have none. Raises InputError."""
    folder = Path(settings.router)
    router, _ = read_bundle(folder)
    served = Served(settings.rule or stored_rule(folder), tuple(router.heads))
    served.asked(None)
    return served


def check_pair(settings: Settings, engine: Engine) -> PairFolder:
    """Return the SLM and the LLM, before a weight is loaded.

    Raises InputError if the router was made for another LLM, SLM, tokenizer, prompt format or
    precision.
    """
    _check_engine(engine)
    folder = Path(settings.router)
    card = read_card(folder)
    if card["dtype"] != engine.dtype:  # before the digests, which may take minutes
        made = f"{folder} was made for {card['dtype']}"
        raise InputError(f"--dtype {engine.dtype}: {made}, expected --dtype {card['dtype']}")
    slm = Path(settings.slm or card["slm"]["id"])
    folders = served_pair(folder, slm, Path(engine.llm))
    check_identity(card, folder_identity(folders, engine.dtype), folder)
    return folders


def load(settings: Settings, engine: Engine) -> tuple[Pair, Router]:
    """Load the SLM and the router; of the LLM, only its card. Raises InputError."""
    folders, (router, _) = check_pair(settings, engine), read_bundle(Path(settings.router))
    llm = folders.llm.path
    params = PairParams.model_validate(
        {"slm": str(folders.slm), "llm": str(llm), "device": engine.device, "dtype": engine.dtype}
    )
    pair = Pair(
        slm=load_model("slm", folders.slm, params),
        llm=ModelSize.of(llm, engine.dtype).model,
        tokenizer=folders.slm.tokenizer,
        tokenizer_digest=folders.tokenizer_digest,
        eos_ids=folders.eos_ids,
        prompts=folders.prompts,
    )
    return pair, router.to(pair.slm.device)


def _check_engine(engine: Engine) -> None:
    if not Path(engine.llm).is_dir():
        expected = "expected a folder, whose digest can be compared with the router's"
        raise InputError(f"model {engine.llm}: {expected}")
    if engine.tokenizer != engine.llm:
        raise InputError(f"--tokenizer {engine.tokenizer}: expected the LLM's own, {engine.llm}")
    if engine.changes:
        expected = "expected none, because the router was trained on the LLM's own weights"
        raise InputError(f"{', '.join(engine.changes)}: {expected}")
