"""The model folders that `params.yaml` names. The prompt format of all stages is chosen here."""

from pathlib import Path

from citer.config.params import Params
from citer.models.folder import ModelFolder, PairFolder
from citer.models.served import llm_folder
from citer.stages import paths


def _llm(params: Params) -> ModelFolder:
    return llm_folder(Path(params.pair.llm), params.pair.llm_url, params.prompts)


def base_slm(params: Params) -> ModelFolder:
    return ModelFolder(Path(params.pair.slm), params.prompts, params.pair.slm_weights)


def base_pair(params: Params) -> PairFolder:
    """The pair before finetuning. Raises InputError if the folders form no pair."""
    return PairFolder(base_slm(params), _llm(params))


def finetuned_slm(params: Params) -> ModelFolder:
    return ModelFolder(paths.SLM, params.prompts, params.pair.slm_weights)


def finetuned_pair(params: Params) -> PairFolder:
    """The finetuned SLM and the LLM. Raises InputError if the folders form no pair."""
    return PairFolder(finetuned_slm(params), _llm(params))
