"""Answer some test questions by the deployed rule of router k, and keep every token."""

from dataclasses import asdict

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.decoding.policy import routed
from citer.models.bundle import check_identity, read_bundle
from citer.models.outlined import open_pair
from citer.report.decoded import transcript
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json, write_json


def run(params: Params, iteration: int) -> None:
    """Write the transcript. Raises InputError if the router belongs to another pair."""
    rule = Rule.parse(read_json(paths.report(iteration) / paths.DEPLOYED)["rule"])
    router, card = read_bundle(paths.router(iteration))
    folders = finetuned_pair(params)
    check_identity(card, folders.identity(params.pair.dtype), paths.router(iteration))
    pair, executor = open_pair(folders, params.pair, params.workers)
    policy = routed(router.to(pair.slm.device), rule)
    test = read_problems(paths.referenced("test"))
    write_json(
        paths.transcript(iteration), asdict(transcript(executor, pair, test, policy, params))
    )
