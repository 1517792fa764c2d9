"""The few numbers of a retraining: `headline.json`, DVC's metrics."""

from collections.abc import Sequence

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, Row
from citer.report.against import ACCURACY, AREA, COST, Comparison

SIZES = 3  # of batches


def deployed(chosen: Chosen) -> str:
    """Return the method whose rule is deployed: the cheapest on validation, the first of equals."""
    return min(chosen, key=lambda method: chosen[method].cost)


def headline(
    standings: Sequence[Row],
    chosen: Chosen,
    comparison: Comparison,
    sizes: Sequence[int],
    measure: Measure,
) -> dict[str, float]:
    """Return at most 12 numbers about the deployed rule of `chosen`, on all test questions.

    Costs are those at batch 1 and the least of `sizes`, where the LLM is delayed. The best
    rival is the cheapest at equal accuracy. A number that does not exist is left out.
    """
    method = deployed(chosen)
    rows = {row["method"]: row for row in standings if row["task"] == "all"}
    slm, llm = (rows[model]["accuracy"] for model in MODELS)
    names = (f"cost_b{n}" if n == 1 else f"cost_b{n}_delayed" for n in sorted({1, *sizes})[:SIZES])
    [area] = (r[AREA] for r in comparison.areas if (r["task"], r["method"]) == ("all", method))
    numbers = {
        "accuracy": rows[method]["accuracy"],
        "llm_accuracy": llm,
        "slm_accuracy": slm,
        "bound": chosen[method].bound,
        "llm_fraction": rows[method]["llm_fraction"],
        **{name: rows[method][name] for name in names},
        AREA: area,
        **_against_best(comparison, method),
    }
    return measure.keys({name: value for name, value in numbers.items() if value is not None})


def _against_best(comparison: Comparison, method: str) -> Row:
    """Return our cost and accuracy beside the best rival's, nothing if none is as accurate.

    A bound is no rival, since it could not be deployed.
    """
    rivals = [row for row in comparison.on_all(method) if not row["is_bound"]]
    reaching = [row for row in rivals if row[COST] is not None]
    if not reaching:
        return {}
    best = max(reaching, key=lambda row: row[COST])
    return {"cost_against_best_rival": best[COST], "accuracy_against_best_rival": best[ACCURACY]}
