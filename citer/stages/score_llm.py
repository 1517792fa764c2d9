"""Score the LLM's half of the token table, independently of the finetuned SLM."""

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.labelling.scoring import score_half
from citer.stages import paths
from citer.stages.folders import base_pair


def run(params: Params) -> None:
    """Score the references of the preference split that no shard has yet."""
    problems = read_problems(paths.referenced("preference"))
    score_half("llm", base_pair(params), problems, paths.LLM_TOKENS, params)
