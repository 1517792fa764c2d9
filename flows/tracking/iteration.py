"""The files of one iteration, and the numbers that MLflow shows about them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from citer.evaluation.measure import MEASURES, Conditions
from citer.stages import paths
from citer.storage.tables import digest, read_json, table_metadata
from flows.tracking.answers import deployed_method

HEADLINES = {*MEASURES, "llm_fraction", "tokens_per_answer"}  # and the costs
UNBOUND = {"data", "labels", "schema_version"}  # a card's keys about the origin of its weights


@dataclass(frozen=True)
class Iteration:
    """The files of router k and of its report. 0 is what needs no preferences."""

    number: int

    @property
    def router(self) -> Path:
        return paths.router(self.number) if self.number else paths.COMMON

    @property
    def learnt(self) -> Path:
        """What the heads learnt from."""
        return paths.preferences(self.number) if self.number else paths.referenced("preference")

    @property
    def report(self) -> Path:
        return paths.report(self.number)

    @cached_property
    def digest(self) -> str:
        """Digest of the weights, the card, the rule, the quality and the bytes moved.

        The paths of the pair and what is `UNBOUND` are left out. They depend on the code that wrote
        them, and other code may produce the same router.
        """
        card = read_json(self.router / "router.json")
        bound = {key: value for key, value in card.items() if key not in UNBOUND}
        bound |= {model: card[model]["digest"] for model in ("slm", "llm")}
        weights = self.router.glob("router.safetensors")
        report = (self.report / name for name in ("threshold.json", "metrics.json"))
        return digest(json.dumps(bound, sort_keys=True), *weights, *report)

    @property
    def threshold(self) -> dict[str, Any]:
        """The deployed rule with its certificate: the cheapest of `chosen.json`."""
        return read_json(self.report / "threshold.json")

    @property
    def conditions(self) -> Conditions:
        return Conditions.stored(table_metadata(self.report / "outcomes.parquet"))

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics on test and of training.

        `all/` and a section for each task hold the deployed method, `rivals/` the headlines of
        the other methods, and `train/` the router's training, without `losses`.
        """
        methods = read_json(self.report / "metrics.json")
        own = methods.pop(deployed_method(read_json(self.report / "chosen.json"), self.threshold))
        tasks = {name: own.pop(name) for name in list(own) if isinstance(own[name], dict)}
        rivals = {name: headlines(numbers) for name, numbers in methods.items()}
        train = read_json(self.router / "metrics.json")
        train.pop("holdout_loss", None)
        sections = {"all": own, **tasks, "rivals": flatten(rivals, "_"), "train": train}
        return flatten(sections, "/")

    @property
    def losses(self) -> dict[str, list[float]]:
        """The losses of training, by epoch."""
        curve = read_json(self.router / paths.CURVE)
        return {"train/loss": curve["train_loss"], "train/holdout_loss": curve["holdout_loss"]}


def iterations(stages: Iterable[str]) -> list[Iteration]:
    """List the iterations of dvc.yaml. The folder may hold files of others."""
    named = (stage.partition("@") for stage in stages)
    return [Iteration(k) for k in sorted(int(key) for name, _, key in named if name == "evaluate")]


def so_far(stages: Iterable[str]) -> dict[str, Iteration]:
    """Return the routers before the last one, by the stage that completes each."""
    earlier = {f"choose@{each.number}": each for each in iterations(stages)[:-1]}
    return {"choose0": Iteration(0), **earlier}


def headlines(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Select the few metrics that describe a router."""
    return {k: v for k, v in metrics.items() if k in HEADLINES or re.fullmatch(r"cost_b\d+", k)}


def section(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """{"all/a": 1, "math/a": 2} → {"a": 1} for the section `all`."""
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}


def flatten(nested: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}."""
    [flat] = pd.json_normalize({**nested}, sep=separator).to_dict("records")
    return flat
