"""Answer the held-out, validation and test questions by every candidate with heads of router k."""

from citer.config.params import Params
from citer.evaluation.cost import counted
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, read_findings, write_findings
from citer.models.bundle import check_identity, read_bundle
from citer.models.router import Router
from citer.stages import paths
from citer.stages.asked import Asked
from citer.storage.tables import remove, replacing


def run(params: Params, iteration: int) -> None:
    """Write the answers by router k. A killed run resumes at its unfinished part of the questions.

    They depend neither on epsilon nor on delta: `choose` judges them.
    Raises InputError unless router, rivals and questions belong to the same study.
    """
    origin = paths.router(iteration)
    router, card = read_bundle(origin)
    common, _ = read_bundle(paths.COMMON)
    asked = Asked.read(params)
    check_identity(card, asked.identity, origin)
    batches = counted(params.evaluate, params.serve)
    rivals = read_findings(paths.RIVALS, batches, asked.stamp | RIVALS_STAMP)
    study = asked.study("evaluate", params, origin, iteration=iteration)
    own = Router({name: head for name, head in router.heads.items() if name not in common.heads})
    findings = study.candidates(own.to(study.pair.slm.device).heads, rivals)
    with replacing(paths.answers(iteration)) as aside:
        write_findings(aside, findings, batches, asked.stamp | ROUTER_STAMP)
    remove(study.partial)
