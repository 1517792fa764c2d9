"""Score the LLM's half of the token table, independently of the finetuned SLM."""

from pathlib import Path

from rich.console import Console

from citer.config import Params
from citer.data.problems import read_problems
from citer.labelling.scoring import score_half
from citer.models.folder import PairFolder
from citer.stages import paths


def run(params: Params) -> None:
    """Score the references of the preference split that no shard has yet."""
    folders = PairFolder(Path(params.pair.slm), Path(params.pair.llm))
    problems = read_problems(paths.problems("preference"))
    scored = score_half("llm", folders, problems, paths.LLM_TOKENS, params.score_llm, params.pair)
    Console().print(f"score_llm: {scored.added} problems scored, {scored.kept} kept")
