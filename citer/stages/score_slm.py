"""Score the SLM's half of the token table, with the hidden states for the router."""

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.labelling.scoring import score_half
from citer.stages import paths
from citer.stages.folders import finetuned_pair


def run(params: Params) -> None:
    """Score the references of the preference split that no shard has yet."""
    problems = read_problems(paths.referenced("preference"))
    score_half("slm", finetuned_pair(params), problems, paths.SLM_TOKENS, params)
