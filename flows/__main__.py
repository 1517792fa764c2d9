"""One retraining on this terminal; `citer run` starts it, and sees that nothing outlives it."""

from rich.console import Console

from citer.errors import InputError
from citer.stages.paths import SUMMARY
from flows.leash import end_with_the_leash
from flows.pipeline import retrain

NEXT = """\
The frontier   data/summary/frontier.png
The versions   citer compare, or: mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db
The runs       prefect server start, then citer run with PREFECT_API_URL as it says
Once more      dvc repro (nothing to do until data, code or params.yaml change)"""


def main() -> None:
    """Retrain; end with the table and where to look next, or with what the user must mend."""
    try:
        outcome = retrain()
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(f"citer: {error}", style="red", markup=False)
        raise SystemExit(2) from None
    table = (SUMMARY / "table.md").read_text()
    Console(soft_wrap=True, highlight=False).print(f"\n{table}\n{outcome}\n\n{NEXT}", markup=False)


if __name__ == "__main__":
    end_with_the_leash()
    main()
