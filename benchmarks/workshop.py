"""The data of a `citer run`: heads that learn from it, and answers to its test questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import torch

from citer.config.params import Params, TrainParams, load_params
from citer.data.problems import Problem, read_problems
from citer.data.prompts import Encoded
from citer.data.tokens import read_features, read_tokens
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy, ScoredBy, Scorer, low_entropy
from citer.evaluation.candidates import quantiles
from citer.evaluation.methods import MODELS
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method, Run, sweep
from citer.executors.base import Executor
from citer.executors.choose import executor_for
from citer.labelling.labeller import Labeller, label_in_chunks
from citer.labelling.rollout import Rollout
from citer.labelling.targets import marginal_loss
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.training.router import Trained, train_head

SEEDS = range(17, 22)
CITER = Rule("score", 0.9)  # the rule under which CITER labels
Families = Mapping[str, Sequence[Rule]]


@dataclass(frozen=True)
class Workshop:
    """The data and models from which heads are trained, and the test questions."""

    params: Params
    pair: Pair
    preference: Mapping[str, Problem]
    validation: Sequence[Problem]
    test: Sequence[Problem]
    tokens: pa.Table  # of the preference questions, with the tokens of both models

    @classmethod
    def open(cls) -> "Workshop":
        """Load the files of the last `citer run`. Raises InputError if there are none."""
        params = load_params()
        splits = ("preference", "validation", "test")
        preference, *asked = (read_problems(paths.referenced(split)) for split in splits)
        pair = load_pair(finetuned_pair(params), params.pair)
        examples = pair.prompts.encode_all(preference)
        tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
        return cls(params, pair, {p.problem_id: p for p in preference}, asked[0], asked[1], tokens)

    @property
    def tasks(self) -> dict[str, np.ndarray]:
        """Return, by task, in_task_Q: whether each test question belongs to it."""
        task_Q = np.array([problem.task for problem in self.test])
        return {str(task): task_Q == task for task in np.unique(task_Q)}

    @cached_property
    def executor(self) -> Executor:
        return executor_for(self.pair)

    @cached_property
    def engine(self) -> Engine:
        params = self.params.decode
        return Engine(self.pair, params.slots, params.max_new_tokens, delayed=True)

    @cached_property
    def examples(self) -> dict[str, Encoded]:
        return self.pair.prompts.encode_all(self.preference.values())

    @cached_property
    def first_labels(self) -> pa.Table:
        """The labels of iteration 1: rollouts by the SLM alone."""
        return self.label(SLM_ALONE, 1)

    def label(self, policy: Policy, iteration: int) -> pa.Table:
        """Label the preference questions by rollouts under a policy."""
        rollout = Rollout(self.engine, policy)
        labeller = Labeller(self.preference, self.examples, rollout, iteration)
        with TemporaryDirectory() as folder:
            return label_in_chunks(self.executor, labeller, self.tokens, Path(folder))

    @cached_property
    def alone(self) -> list[Run]:
        """The runs of the SLM alone and of the LLM alone on the test questions."""
        return [run for [run] in self.sweep(self.test, ALONE_LINES)]

    def answer(self, method: Method, families: Families) -> dict[str, list[Run]]:
        """Answer the test questions with all rules of a method in one sweep; group by family.

        The runs of a family begin with the SLM alone and end with the LLM alone.
        """
        rules = [rule for family in families.values() for rule in family]
        [answered] = self.sweep(self.test, [Line(method, rules)])
        runs = {run.rule: run for run in answered}
        slm, llm = self.alone
        return {
            name: [slm, *(runs[rule] for rule in family), llm] for name, family in families.items()
        }

    def answer_thresholds(
        self, fractions: Sequence[float], scorer: Scorer = low_entropy
    ) -> list[float]:
        """Return τ at these fractions of the scores in the SLM's own validation answers."""
        [[alone]] = self.sweep(self.validation, [Line(Method("slm", scorer), [SLM_ALONE.rule])])
        scores = [score for result in alone.results for score in result.scores]
        return quantiles(scores, fractions)

    def sweep(self, problems: Sequence[Problem], lines: Sequence[Line]) -> list[list[Run]]:
        with TemporaryDirectory() as folder:
            source = self.engine, problems, lines
            return sweep(self.executor, *source, Path(folder))


class Teacher:
    """Labels the questions of a workshop and trains heads, with one seed."""

    def __init__(self, shop: Workshop, seed: int) -> None:
        self.shop = shop
        self.first = shop.first_labels  # of iteration 1
        self.seed = seed
        self._second: dict[Rule, pa.Table] = {}

    def second(self, rule: Rule) -> pa.Table:
        """Return the labels of iteration 2: rollouts by the head `first`, under `rule`."""
        if rule not in self._second:
            head = self._train(self.first, self.first["label"].to_numpy(), None).head
            self._second[rule] = self.shop.label(Policy(ScoredBy(head), rule), 2)
        return self._second[rule]

    def trained(
        self, learns: str, contested: int | None = None, width: int | None = None
    ) -> Trained:
        """Train a head on what it `learns`. All contested tokens get the label `contested`, if any.

        It learns the labels of iteration 1 (`first`) or 2 (`second`; with CITER's own rule:
        `citer`), the LLM's tokens (`agree`), or the reference's by Co-LLM's loss (`Co-LLM`). It is
        as wide as the SLM's state, or as `width`.
        """
        if learns == "Co-LLM":
            return self._train_likelihood(width)
        if learns == "agree":
            slm_N, llm_N = (self.shop.tokens[f"{name}_token"].to_numpy() for name in MODELS)
            return self._train(self.shop.tokens, slm_N == llm_N, width)
        if learns == "first":
            rows = self.first
        else:
            rows = self.second(CITER if learns == "citer" else self.shop.params.label.rule)
        label_N = rows["label"].to_numpy()
        if contested is not None:
            label_N = np.where(rows["case"].to_numpy() == "contested", contested, label_N)
        return self._train(rows, label_N, width)

    @property
    def _settings(self) -> tuple[TrainParams, int, torch.device]:
        return self.shop.params.train, self.seed, self.shop.pair.slm.device

    def _train(self, rows: pa.Table, label_N: np.ndarray, width: int | None) -> Trained:
        """Train a head on `rows` (problem_id, position) and their labels."""
        data = read_features(paths.SLM_TOKENS, rows), label_N, rows["problem_id"].to_numpy()
        return train_head(*data, *self._settings, hidden_size=width)

    def _train_likelihood(self, width: int | None) -> Trained:
        """Train a head by Co-LLM's loss of both models' log-probabilities of the reference."""
        rows = self.shop.tokens
        logprob_N2 = np.stack([rows[f"{name}_logprob_gt"].to_numpy() for name in MODELS], 1)
        data = read_features(paths.SLM_TOKENS, rows), logprob_N2, rows["problem_id"].to_numpy()
        return train_head(*data, *self._settings, hidden_size=width, loss=marginal_loss)
