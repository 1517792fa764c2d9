"""What the page shows: the findings of a retraining, and the files that it may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from citer.evaluation.choice import Chosen, ChosenRule
from citer.evaluation.measure import Conditions
from citer.evaluation.methods import Row
from citer.report.headline import deployed
from citer.report.standings import chosen_point, standings
from citer.report.tokens import Transcript, read_transcript
from citer.storage.schema import HOLDOUT
from citer.storage.tables import read_as, read_json, read_table

Curve = dict[str, list[float]]


@dataclass(frozen=True)
class PageStudy:
    """The findings of a retraining, with the iteration in the methods' names.

    `tokens` are the transcripts and `routers` the folders of each iteration, the last one deployed.
    `finetune` is the file with the losses of finetuning, `against` that of the comparison with the
    rivals. A section whose file is missing is left out.
    """

    points: Sequence[Row]
    chosen: Chosen
    conditions: Conditions
    tokens: Mapping[str, Path]
    routers: Mapping[str, Path]
    finetune: Path
    against: Path

    @property
    def iteration(self) -> str:
        return list(self.tokens)[-1]

    @property
    def deployed(self) -> tuple[str, ChosenRule]:
        """The method and rule that the last router would serve with."""
        own = {name: rule for name, rule in self.chosen.items() if self._is_last(name)}
        method = deployed(own)
        return method, own[method]

    def _is_last(self, method: str) -> bool:
        return method.endswith(f"_{self.iteration}")

    @property
    def point(self) -> Row:
        """The deployed rule on all test questions."""
        method, chosen = self.deployed
        return chosen_point(self.points, method, chosen.rule)

    @property
    def llm(self) -> Row:
        """The LLM alone on all test questions."""
        return next(p for p in self.points if (p["method"], p["task"]) == ("llm", "all"))

    @property
    def standings(self) -> list[Row]:
        return standings(self.points, self.chosen)

    @property
    def transcripts(self) -> dict[str, Transcript]:
        """The transcripts of iterations that have one."""
        return {k: read_transcript(file) for k, file in self.tokens.items() if file.exists()}

    @property
    def holdout(self) -> pa.Table | None:
        """The held-out labels of the last router, with their scores."""
        file = self.routers[self.iteration] / "holdout.parquet"
        return read_table(file, HOLDOUT) if file.exists() else None

    @property
    def beside_rivals(self) -> list[Row]:
        """The deployed rule beside each rival on all tasks, with the names on disk."""
        if not self.against.exists():
            return []
        place = "all", self.deployed[0]
        rows = read_json(self.against)["against"]
        return [row for row in rows if (row["task"], row["method"]) == place]

    @property
    def router_curves(self) -> dict[str, Curve]:
        files = {number: folder / "curve.json" for number, folder in self.routers.items()}
        return {number: read_as(file, Curve) for number, file in files.items() if file.exists()}

    @property
    def finetune_curve(self) -> list[float]:
        return read_as(self.finetune, Curve)["loss"] if self.finetune.exists() else []
