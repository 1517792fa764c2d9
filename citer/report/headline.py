"""The few numbers of a retraining: `headline.json`, DVC's metrics."""

from collections.abc import Sequence

from citer.evaluation.choice import Chosen, deployed
from citer.evaluation.cost import batches
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, Kind, Row
from citer.report.worth import ACCURACY, COST

SIZES = 3  # of batches
KNOWN = (Kind.RIVAL, Kind.EXACT)


def headline(
    standings: Sequence[Row],
    chosen: Chosen,
    others: Sequence[Row],
    sizes: Sequence[int],
    measure: Measure,
) -> dict[str, float]:
    """Return at most 12 numbers about the deployed rule of `chosen`, on all test questions.

    Costs are those at batch 1 and the least of `sizes`, where the LLM is delayed. The best
    rival is the cheapest of the `others` (`worth`) at equal accuracy. A number that does not exist
    is left out.
    """
    method = deployed(chosen)
    rows = {row["method"]: row for row in standings if row["task"] == "all"}
    slm, llm = (rows[model]["accuracy"] for model in MODELS)
    columns = [own.column for own in batches(sizes) if own.slots == 1 or own.schedule == "delayed"]
    numbers = {
        "accuracy": rows[method]["accuracy"],
        "llm_accuracy": llm,
        "slm_accuracy": slm,
        "bound": chosen[method].bound,
        "llm_fraction": rows[method]["llm_fraction"],
        **{name: rows[method][name] for name in columns[:SIZES]},
        **_against_best(others),
    }
    return measure.keys({name: value for name, value in numbers.items() if value is not None})


def _against_best(others: Sequence[Row]) -> Row:
    """Return our cost and accuracy beside the best known method's, if one is as accurate."""
    known = [row for row in others if row["task"] == "all" and row["kind"] in KNOWN]
    reaching = [row for row in known if row[COST] is not None]
    if not reaching:
        return {}
    best = max(reaching, key=lambda row: row[COST])
    return {"cost_against_best_rival": best[COST], "accuracy_against_best_rival": best[ACCURACY]}
