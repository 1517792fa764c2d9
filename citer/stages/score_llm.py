"""The LLM's half of the token table; the finetuned SLM has no part in it."""

from pathlib import Path

from rich.console import Console

from citer.config import Params
from citer.data.problems import read_problems
from citer.labelling.scoring import score_half
from citer.stages import paths


def run(params: Params) -> None:
    """Score the preference split's references, those alone that no shard holds yet."""
    pair = {"slm": Path(params.pair.slm), "llm": Path(params.pair.llm)}
    problems = read_problems(paths.problems("preference"))
    scored = score_half("llm", pair, problems, paths.LLM_TOKENS, params.score_llm, params.pair)
    Console().print(f"score_llm: {scored.added} problems scored, {scored.kept} kept")
