"""Compare routers that learnt with and without ground truth, on the last run's test questions.

    python -m benchmarks.unlabelled        # after `citer run`

Writes `benchmarks/results/unlabelled.{json,md}`: f95 (`benchmarks.fractions`) of routers by the
writer of the references and by the outcome that decides contested tokens. Without ground truth
(`llm, suffix`), no reference is given and no answer is graded. For `questions, suffix` the SLM is
finetuned on the LLM's references, too. Seeds are those of training.

The table compares every other router with the first.

Besides, for the LLM's references: the share of contested tokens that two outcomes label alike, the
seconds that each outcome takes, and how well the fall ranks the labels of rollouts if it covers
more or less of the ending.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from io import StringIO
from itertools import combinations
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console
from sklearn.metrics import roc_auc_score

from benchmarks.fractions import Answered, as_table, compared, note
from benchmarks.workshop import CITER, FRACTIONS, SEEDS, Workshop, thresholds
from citer.config.params import Params, load_params
from citer.data.problems import read_problems, write_problems
from citer.decoding.policy import SLM_ALONE, Policy, ScoredBy
from citer.evaluation.rivals import by_score, low_entropy
from citer.evaluation.sweep import Method
from citer.labelling.agreement import Agreement
from citer.labelling.contests import Outcome
from citer.labelling.rollout import Rollout
from citer.labelling.suffix import Suffix
from citer.progress import progress
from citer.stages import finetune, paths, references, score_llm, score_slm
from citer.storage.schema import SPLITS
from citer.storage.tables import PARTIAL, write_json, write_text
from citer.training.router import Trained

ROUTERS = [
    *("given, rollout", "given, agreement", "given, suffix"),
    *("llm, rollout", "llm, agreement", "llm, suffix", "questions, suffix"),
]
RESULTS = Path("benchmarks/results")
SHARES = list(FRACTIONS)  # of tokens that the LLM should write
ENDINGS = {"0": 0, "4": 4, "8": 8, "all": 10**6}  # tokens
Make = Callable[[Workshop, Policy], Outcome]
OUTCOMES: Mapping[str, Make] = {
    "rollout": lambda shop, policy: Rollout(shop.engine, policy, shop.params.label.tie),
    "agreement": lambda shop, policy: Agreement(shop.engine, policy),
    "suffix": lambda shop, policy: Suffix(shop.pair, shop.params.label.slots),
}


class Plan(NamedTuple):
    """The routers to compare, seeds of training, iterations of rollouts, shares of LLM tokens."""

    routers: Sequence[str]
    seeds: int
    iterations: int
    fractions: Sequence[float]


class Bench(NamedTuple):
    """A workshop in a project's folder, whose files it reads when it needs them."""

    folder: Path
    shop: Workshop

    @classmethod
    def open(cls, folder: Path) -> "Bench":
        with chdir(folder):
            return cls(folder, Workshop.open())

    def with_answers(self, given: "Bench") -> "Bench":
        """Return the bench with the right answers of another's questions, for rollouts."""
        known = given.shop.preference
        rows = self.shop.preference.values()
        graded = {p.problem_id: replace(p, answer=known[p.problem_id].answer) for p in rows}
        return self._replace(shop=replace(self.shop, preference=graded))

    def trained(self, outcome: str, seed: int, iterations: int) -> Trained:
        """Train a router by an outcome. `suffix` asks no router, so one iteration will do."""
        policy, trained = SLM_ALONE, None
        with chdir(self.folder):
            for k in range(1, 2 if outcome == "suffix" else iterations + 1):
                labels = self.shop.label(OUTCOMES[outcome](self.shop, policy), k)
                trained = self.shop.train_on(labels, seed)
                policy = Policy(ScoredBy(trained.head), CITER)
        assert trained
        return trained


def without_ground_truth(project: Path, name: str) -> Path:
    """Make a project whose references the LLM writes, from the questions of another.

    The SLM of `questions` is finetuned on them; else it is the other project's. The folder stays,
    so that a killed study continues.
    """
    own_slm, folder = name == "questions", project / PARTIAL / "unlabelled" / name
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for part in ("params.yaml", "data/pair", *(() if own_slm else ("data/models",))):
        if not (folder / part).exists():
            os.symlink(project / part, folder / part)
    with chdir(folder):
        params = load_params()
        if not paths.REFERENCES.exists():
            _forget_answers(project)
            references.run(_by_llm(params))
        if own_slm and not paths.SLM.exists():
            finetune.run(params)
        score_llm.run(params)
        score_slm.run(params)
    return folder


def _forget_answers(project: Path) -> None:
    for split in SPLITS:
        problems = read_problems(project / paths.problems(split))
        if split in ("sft", "preference"):
            problems = [replace(each, reference=None, answer=None) for each in problems]
        write_problems(paths.problems(split), problems, {})


def _by_llm(params: Params) -> Params:
    section = params.references.model_copy(update={"source": "llm"})
    return params.model_copy(update={"references": section})


def study(opened: Mapping[str, Bench], plan: Plan) -> Answered:
    """Answer the test questions by entropy and, for each seed, by every router."""
    shop = opened["given"].shop
    answered: Answered = {}
    entropy = {"entropy": by_score(shop.answer_thresholds(fractions=plan.fractions))}
    note(answered, shop.answer(Method("entropy", low_entropy), entropy))
    with progress("routers", plan.seeds * len(plan.routers), "routers") as advance:
        for seed in SEEDS[: plan.seeds]:
            for name in plan.routers:
                source, outcome = name.split(", ")
                trained = opened[source].trained(outcome, seed, plan.iterations)
                by_router = Method(name, ScoredBy(trained.head), trained.head.weight_bytes)
                rules = {name: by_score(thresholds(trained, plan.fractions))}
                note(answered, opened[source].shop.answer(by_router, rules))
                advance(1)
    return answered


def labels_of(bench: Bench) -> dict[str, Any]:
    """Label by each outcome, with rollouts of the SLM alone. Compare the labels and the seconds."""
    labels: dict[str, np.ndarray] = {}
    seconds = {}
    for outcome, make in OUTCOMES.items():
        start = perf_counter()
        labels[outcome] = _of_contested(bench, make(bench.shop, SLM_ALONE))["label"].to_numpy()
        seconds[outcome] = perf_counter() - start
    pairs = combinations(labels, 2)
    return {
        "contested": len(labels["suffix"]),
        "labelled 1": {name: float(label_N.mean()) for name, label_N in labels.items()},
        "equal": {f"{a}, {b}": float((labels[a] == labels[b]).mean()) for a, b in pairs},
        "seconds": seconds,
        "AUC of the fall, by tokens of the ending": _by_ending(bench, labels["rollout"]),
    }


def _of_contested(bench: Bench, outcome: Outcome) -> pa.Table:
    with chdir(bench.folder):
        return bench.shop.label(outcome, 1).filter(pc.field("case") == "contested")


def _by_ending(bench: Bench, label_N: np.ndarray) -> dict[str, float]:
    """Return how well falls over endings of several lengths rank the labels of rollouts."""
    pair, slots = bench.shop.pair, bench.shop.params.label.slots
    auc = {}
    for name, tokens in ENDINGS.items():
        rows = _of_contested(bench, Suffix(pair, slots, margin=inf, ending=tokens))
        auc[name] = float(roc_auc_score(label_N, -rows["fall"].to_numpy()))
    return auc


def benches(project: Path, routers: Sequence[str]) -> dict[str, Bench]:
    """Open the project and, if a router needs it, one made from its questions alone."""
    opened = {"given": Bench.open(project)}
    for name in ("llm", "questions"):
        if any(router.startswith(f"{name}, ") for router in routers):
            opened[name] = Bench.open(without_ground_truth(project, name))
    return opened


def main(
    project: Annotated[Path, typer.Option(help="Folder of a finished run.")] = Path(),
    results: Annotated[str, typer.Option(help="Name of the results.")] = "unlabelled",
    router: Annotated[list[str], typer.Option(help="WRITER, OUTCOME")] = ROUTERS,
    seeds: Annotated[int, typer.Option(help="Seeds of training.")] = len(SEEDS),
    iterations: Annotated[int, typer.Option(help="Of rollouts.")] = 2,
    fraction: Annotated[list[float], typer.Option(help="Of tokens by the LLM.")] = SHARES,
) -> None:
    target = (RESULTS / results).absolute()
    opened = benches(project.absolute(), router)
    opened["llm"] = opened["llm"].with_answers(opened["given"])
    labels, tasks = labels_of(opened["llm"]), opened["given"].shop.tasks
    print(labels, flush=True)
    answered = study(opened, Plan(router, seeds, iterations, fraction))
    by_task = {task: compared(answered, in_task_Q, router[0]) for task, in_task_Q in tasks.items()}
    write_json(target.with_suffix(".json"), {"labels": labels, "tasks": by_task})
    text = StringIO()
    Console(file=text, width=120).print(as_table(by_task, router[0]))
    write_text(target.with_suffix(".md"), text.getvalue())
    print(text.getvalue())


if __name__ == "__main__":
    typer.run(main)
