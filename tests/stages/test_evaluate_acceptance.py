"""The stage `evaluate` with acceptance rules besides audits."""

from citer.config.params import Params
from citer.evaluation.points import rule_of
from citer.rule import Rule
from citer.stages import paths, rivals
from citer.storage.schema import OUTCOME
from citer.storage.tables import read_json, read_table
from tests.stages.conftest import run_router


def test_other_acceptance_rules_are_tried_priced_and_stored(params: Params) -> None:
    section = params.evaluate.model_copy(update={"audits": ("kl 0.5", "top 2", 0.1)})
    params = params.model_copy(update={"evaluate": section})
    rivals.run(params)
    run_router(params, 1)
    rows = read_table(paths.report(1) / "outcomes.parquet", OUTCOME).to_pylist()
    audited = {rule_of(row): row["by"] for row in rows if row["method"] == "audited"}
    assert audited.keys() == {
        Rule("risk", risk, *rest)
        for risk in section.risks
        for rest in ((0.5, "kl"), (2, "top"), (0.1,))
    }
    assert all(by == (None if rule.by == "audit" else rule.by) for rule, by in audited.items())
    assert read_json(paths.report(1) / "chosen.json")["audited"]["rule"]["by"]
