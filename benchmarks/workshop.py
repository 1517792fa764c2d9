"""Shared by the studies: load the data of a `citer run`, train heads, answer test questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from citer.labelling.chunks import label_in_chunks

from benchmarks.paired import Outcomes
from citer.config.params import Params, TrainParams, load_params
from citer.data.problems import Problem, read_problems
from citer.data.prompts import Encoded
from citer.data.tokens import read_features, read_tokens
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, ScoredBy, Scorer
from citer.evaluation.methods import MODELS
from citer.evaluation.rivals import low_entropy, quantiles
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method, Run, sweep
from citer.executors.base import Executor
from citer.executors.choose import executor_for
from citer.labelling.contests import Outcome
from citer.labelling.labeller import Labeller
from citer.labelling.rollout import Rollout
from citer.models.pair import Pair, load_pair
from citer.models.router import Head
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.training.router import Loss, Trained, train_by, train_head

SEEDS = range(17, 22)
FRACTIONS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 0.7)
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
    sampler: Sampler = ALL_GREEDY

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

    def only(self, tasks: Sequence[str]) -> "Workshop":
        """Return a workshop that trains and validates on some tasks. It tests on all."""
        preference = {key: each for key, each in self.preference.items() if each.task in tasks}
        validation = [problem for problem in self.validation if problem.task in tasks]
        kept_N = pc.is_in(self.tokens["problem_id"], pa.array(preference, pa.string()))
        tokens = self.tokens.filter(kept_N)
        return replace(self, preference=preference, validation=validation, tokens=tokens)

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
        params = self.params.evaluate
        return Engine(self.pair, params.slots, params.max_new_tokens, delayed=True)

    @cached_property
    def examples(self) -> dict[str, Encoded]:
        return self.pair.prompts.encode_all(self.preference.values())

    @cached_property
    def first_labels(self) -> pa.Table:
        """The labels of iteration 1: rollouts by the SLM alone."""
        return self.label(self._rollout(SLM_ALONE), 1)

    def second_labels(self, first: Head, rule: Rule) -> pa.Table:
        """Label iteration 2: rollouts under `rule`, with the head trained on the first labels."""
        return self.label(self._rollout(Policy(ScoredBy(first), rule)), 2)

    @cached_property
    def llm_labels(self) -> pa.Table:
        """Labels by rollouts that the LLM finishes alone."""
        return self.label(self._rollout(LLM_ALONE), 1)

    def _rollout(self, policy: Policy) -> Rollout:
        return Rollout(self.engine, policy, self.params.label.tie)

    def label(self, outcome: Outcome, iteration: int) -> pa.Table:
        labeller = Labeller(self.preference, self.examples, outcome, iteration)
        with TemporaryDirectory() as folder:
            return label_in_chunks(self.executor, labeller, self.tokens, Path(folder))

    def train(
        self, rows: pa.Table, label_N: np.ndarray, seed: int, width: int | None = None
    ) -> Trained:
        """Train a head on `rows` (problem_id, position) and their labels."""
        data = read_features(paths.SLM_TOKENS, rows), label_N, rows["problem_id"].to_numpy()
        return train_head(*data, *self._fit(seed), hidden_size=width)

    def train_likelihood(self, loss: Loss, seed: int, width: int | None = None) -> Trained:
        """Train a head by a loss of both models' log-probabilities of the reference's tokens."""
        rows = self.tokens
        logprob_N2 = np.stack([rows[f"{name}_logprob_gt"].to_numpy() for name in MODELS], 1)
        data = read_features(paths.SLM_TOKENS, rows), logprob_N2, rows["problem_id"].to_numpy()
        return train_by(loss, *data, *self._fit(seed), hidden_size=width)

    def _fit(self, seed: int) -> tuple[TrainParams, torch.device]:
        return self.params.train.model_copy(update={"seed": seed}), self.pair.slm.device

    def train_on(self, labels: pa.Table, seed: int) -> Trained:
        return self.train(labels, labels["label"].to_numpy(), seed)

    def train_agree(self, seed: int) -> Trained:
        """Train a head on the LLM's tokens."""
        slm_N, llm_N = (self.tokens[name].to_numpy() for name in ("slm_token", "llm_token"))
        return self.train(self.tokens, slm_N == llm_N, seed)

    @cached_property
    def alone(self) -> list[Run]:
        """The runs of the SLM alone and of the LLM alone on the test questions."""
        return [run for [run] in self._sweep(self.test, ALONE_LINES)]

    def accuracies(self, in_task_Q: np.ndarray) -> dict[str, float]:
        """Return each model's accuracy alone on the test questions in `in_task_Q`."""
        return {
            name: float(np.mean([result.correct for result in run.results], where=in_task_Q))
            for name, run in zip(("slm", "llm"), self.alone, strict=True)
        }

    def answer(self, method: Method, families: Families) -> dict[str, Outcomes]:
        """Answer the test questions with all rules of a method in one sweep; group by family."""
        rules = [rule for family in families.values() for rule in family]
        [answered] = self._sweep(self.test, [Line(method, rules)])
        runs = {run.rule: run for run in answered}
        slm, llm = self.alone
        return {
            name: Outcomes.of([slm, *(runs[rule] for rule in family), llm])
            for name, family in families.items()
        }

    def answer_thresholds(
        self, scorer: Scorer = low_entropy, fractions: Sequence[float] = FRACTIONS
    ) -> list[float]:
        """Return τ at these fractions of the scores in the SLM's own validation answers."""
        [[alone]] = self._sweep(self.validation, [Line(Method("slm", scorer), [SLM_ALONE.rule])])
        scores = [score for result in alone.results for score in result.scores]
        return quantiles(scores, fractions)

    def _sweep(self, problems: Sequence[Problem], lines: Sequence[Line]) -> list[list[Run]]:
        with TemporaryDirectory() as folder:
            source = self.engine, problems, lines
            return sweep(self.executor, *source, Path(folder), self.sampler)


def thresholds(trained: Trained, fractions: Sequence[float] = FRACTIONS) -> list[float]:
    """Return τ at these fractions of the head's holdout scores, by interpolation."""
    known = [float(fraction) for fraction in trained.thresholds]
    return np.interp(fractions, known, list(trained.thresholds.values())).tolist()
