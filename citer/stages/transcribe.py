"""Answer some test questions by the deployed rule of router k, and keep every token."""

from dataclasses import asdict, dataclass

from citer.config.params import Params, RuleText
from citer.data.problems import read_problems
from citer.decoding.policy import routed
from citer.models.bundle import check_identity, read_bundle
from citer.models.outlined import open_pair
from citer.report.decoded import transcript
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_as, write_json


@dataclass(frozen=True)
class _Deployed:
    rule: RuleText


def run(params: Params, iteration: int) -> None:
    """Write the transcript. Raises InputError if the router belongs to another pair."""
    deployed = read_as(paths.report(iteration) / paths.DEPLOYED, _Deployed)
    router, card = read_bundle(paths.router(iteration))
    folders = finetuned_pair(params)
    check_identity(card, folders.identity(params.pair.dtype), paths.router(iteration))
    pair, executor = open_pair(folders, params.pair, params.workers)
    policy = routed(router.to(pair.slm.device), deployed.rule)
    test = read_problems(paths.referenced("test"))
    write_json(
        paths.transcript(iteration), asdict(transcript(executor, pair, test, policy, params))
    )
