"""Where the studies make heads and let them answer: what a `citer run` left, and many seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from benchmarks.paired import Outcomes
from citer.config import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.prompts import Encoded, encode_all
from citer.data.tokens import read_features, read_tokens
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy, ScoredBy
from citer.evaluation.study import ALONE, quantiles
from citer.evaluation.sweep import Line, Method, Run, sweep
from citer.labelling.chunks import label_in_chunks
from citer.labelling.rollout import Labeller
from citer.models.pair import Pair, load_pair
from citer.models.router import Head
from citer.rule import Rule
from citer.stages import paths
from citer.training import Trained, train_head

SEEDS = range(17, 22)
FRACTIONS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 0.7)
CITER = Rule("score", 0.9)  # what it labels by
Families = Mapping[str, Sequence[Rule]]


@dataclass(frozen=True)
class Workshop:
    """What heads are made from, and the questions that they are tested on."""

    params: Params
    pair: Pair
    preference: Mapping[str, Problem]
    validation: Sequence[Problem]
    test: Sequence[Problem]

    @classmethod
    def open(cls) -> "Workshop":
        """Raises InputError before a `citer run`."""
        params = load_params()
        splits = [read_problems(paths.problems(n)) for n in ("preference", "validation", "test")]
        pair = load_pair(paths.SLM, Path(params.pair.llm), params.pair)
        return cls(params, pair, {p.problem_id: p for p in splits[0]}, *splits[1:])

    @property
    def tasks(self) -> dict[str, np.ndarray]:
        """mine_Q of each task: which of the test questions are its own."""
        task_Q = np.array([problem.task for problem in self.test])
        return {str(task): task_Q == task for task in np.unique(task_Q)}

    @cached_property
    def engine(self) -> Engine:
        params = self.params.evaluate
        return Engine(self.pair, params.slots, params.max_new_tokens, delayed=True)

    @cached_property
    def examples(self) -> dict[str, Encoded]:
        return encode_all(self.preference.values(), self.pair.tokenizer, self.pair.eos_id)

    @cached_property
    def tokens(self) -> pa.Table:
        return read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, self.examples)

    @cached_property
    def first_labels(self) -> pa.Table:
        """Of iteration 1: rollouts by the SLM alone."""
        return self._label(SLM_ALONE, 1)

    def second_labels(self, first: Head, rule: Rule) -> pa.Table:
        """Of iteration 2: rollouts by the head that the first ones trained, under this rule."""
        return self._label(Policy(ScoredBy(first), rule), 2)

    def _label(self, policy: Policy, iteration: int) -> pa.Table:
        tie = self.params.label.tie
        labeller = Labeller(self.preference, self.examples, self.engine, policy, tie, iteration)
        with TemporaryDirectory() as folder:
            return label_in_chunks(labeller, self.tokens, Path(folder))

    def train(self, rows: pa.Table, label_N: np.ndarray, seed: int) -> Trained:
        """A head of `rows` (problem_id, position) and their labels."""
        return train_head(
            read_features(paths.SLM_TOKENS, rows),
            label_N,
            rows["problem_id"].to_numpy(),
            self.params.train.model_copy(update={"seed": seed}),
            self.pair.slm.device,
        )

    def train_on(self, labels: pa.Table, seed: int) -> Trained:
        return self.train(labels, labels["label"].to_numpy(), seed)

    @cached_property
    def alone(self) -> list[Run]:
        """The SLM and the LLM alone on test."""
        return [run for [run] in sweep(self.engine, self.test, ALONE)]

    def accuracies(self, mine_Q: np.ndarray) -> dict[str, float]:
        """Of the models alone, on these of the test questions."""
        return {
            name: float(np.mean([result.correct for result in run.results], where=mine_Q))
            for name, run in zip(("slm", "llm"), self.alone, strict=True)
        }

    def answer(self, method: Method, families: Families) -> dict[str, Outcomes]:
        """The test questions by families of rules of one method, in one sweep."""
        rules = [rule for family in families.values() for rule in family]
        [found] = sweep(self.engine, self.test, [Line(method, rules)])
        runs = {run.rule: run for run in found}
        slm, llm = self.alone
        return {
            name: Outcomes.of([slm, *(runs[rule] for rule in family), llm])
            for name, family in families.items()
        }

    def certainty_thresholds(self) -> list[float]:
        """τ at `FRACTIONS` of the certainties of the SLM's own tokens on validation."""
        [[alone]] = sweep(self.engine, self.validation, ALONE[:1])
        scores = [score for result in alone.results for score in result.scores]
        return quantiles(scores, FRACTIONS)


def thresholds(trained: Trained) -> list[float]:
    """τ at `FRACTIONS` of the head's holdout scores."""
    known = [float(fraction) for fraction in trained.thresholds]
    return np.interp(FRACTIONS, known, list(trained.thresholds.values())).tolist()
