"""The model folders that `params.yaml` names. The prompt format of all stages is chosen here."""

from pathlib import Path

from citer.config import Params
from citer.models.folder import ModelFolder, PairFolder
from citer.stages import paths


def base_slm(params: Params) -> ModelFolder:
    """The SLM before finetuning."""
    return ModelFolder(Path(params.pair.slm))


def base_pair(params: Params) -> PairFolder:
    """The pair before finetuning. Raises InputError if the folders form no pair."""
    return PairFolder(Path(params.pair.slm), Path(params.pair.llm))


def finetuned_slm() -> ModelFolder:
    """The SLM after finetuning."""
    return ModelFolder(paths.SLM)


def finetuned_pair(params: Params) -> PairFolder:
    """The finetuned SLM and the LLM. Raises InputError if the folders form no pair."""
    return PairFolder(paths.SLM, Path(params.pair.llm))
