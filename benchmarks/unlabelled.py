"""Compare routers that learnt with and without ground truth, on the last run's test questions.

    python -m benchmarks.unlabelled        # after `citer run`

Writes `benchmarks/results/unlabelled.{json,md}`: f95 (`benchmarks.fractions`) of routers by the
writer of the references and by the outcome that decides contested tokens. Without ground truth
(`llm, suffix`), no reference is given and no answer is graded. `from questions` also finetunes the
SLM on the LLM's references. The rollouts are those of iteration 2. Seeds are those of training.

Besides, for the LLM's references: the share of contested tokens that two outcomes label alike, and
the seconds that each outcome takes.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import replace
from io import StringIO
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from benchmarks.fractions import Answered, as_table, compared, note
from benchmarks.workshop import CITER, SEEDS, Workshop, thresholds
from citer.config import Params, load_params
from citer.data.problems import read_problems, write_problems
from citer.decoding.policy import SLM_ALONE, Policy, ScoredBy
from citer.evaluation.rivals import by_score, low_entropy
from citer.evaluation.sweep import Method, by_head
from citer.io import write_json, write_text
from citer.labelling.agreement import Agreement
from citer.labelling.contests import Outcome
from citer.labelling.rollout import Rollout
from citer.labelling.suffix import Suffix
from citer.progress import progress
from citer.schema import SPLITS
from citer.stages import finetune, paths, references, score_llm, score_slm
from citer.training import Trained

OURS = "given, rollout"
FROM_QUESTIONS = "from questions"
RESULTS = Path("benchmarks/results")
Make = Callable[[Workshop, Policy], Outcome]
OUTCOMES: Mapping[str, Make] = {
    "rollout": lambda shop, policy: Rollout(shop.engine, policy, shop.params.label.tie),
    "agreement": lambda shop, policy: Agreement(shop.engine, policy),
    "suffix": lambda shop, policy: Suffix(shop.pair, shop.params.label.slots),
}


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

    def trained(self, outcome: str, seed: int) -> tuple[Trained, pa.Table]:
        """Train a router by an outcome. Rollouts are those of iteration 2. Return its labels."""
        make = OUTCOMES[outcome]
        with chdir(self.folder):
            labels = self.shop.label(make(self.shop, SLM_ALONE), 1)
            router = self.shop.train_on(labels, seed)
            if outcome == "suffix":  # it asks no router
                return router, labels
            second = self.shop.label(make(self.shop, Policy(ScoredBy(router.head), CITER)), 2)
            return self.shop.train_on(second, seed), second

    def answers(self, name: str, trained: Trained) -> Answered:
        rules = by_score(thresholds(trained))
        outcomes = self.shop.answer(by_head(name, trained.head), {name: rules})
        return {name: [each] for name, each in outcomes.items()}


@contextmanager
def without_ground_truth(project: Path, *, own_slm: bool) -> Iterator[Path]:
    """Make a project whose references the LLM writes, from the questions of another.

    With `own_slm`, its SLM is finetuned on them; else it is the other project's.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("params.yaml", "data/pair", *(() if own_slm else ("data/models",))):
            (folder / part).parent.mkdir(exist_ok=True)
            os.symlink(project / part, folder / part)
        with chdir(folder):
            params = load_params()
            _forget_answers(project)
            references.run(_by_llm(params))
            if own_slm:
                finetune.run(params)
            score_llm.run(params)
            score_slm.run(params)
            yield folder


def _forget_answers(project: Path) -> None:
    for split in SPLITS:
        problems = read_problems(project / paths.problems(split))
        if split in ("sft", "preference"):
            problems = [replace(each, reference=None, answer=None) for each in problems]
        write_problems(paths.problems(split), problems, {})


def _by_llm(params: Params) -> Params:
    section = params.references.model_copy(update={"source": "llm"})
    return params.model_copy(update={"references": section})


def study(given: Bench, llm: Bench, questions: Bench) -> Answered:
    answered: Answered = {}
    entropy = {"entropy": by_score(given.shop.certainty_thresholds())}
    note(answered, given.shop.answer(Method("entropy", low_entropy), entropy))
    benches = {"given": given, "llm": llm}
    with progress("routers", len(SEEDS) * (2 * len(OUTCOMES) + 1), "routers") as advance:
        for seed in SEEDS:
            for source, bench in benches.items():
                for outcome in OUTCOMES:
                    name = f"{source}, {outcome}"
                    trained, _ = bench.trained(outcome, seed)
                    _extend(answered, given.answers(name, trained))
                    advance(1)
            trained, _ = questions.trained("suffix", seed)
            _extend(answered, questions.answers(FROM_QUESTIONS, trained))
            advance(1)
    return answered


def _extend(answered: Answered, more: Answered) -> None:
    for name, seeds in more.items():
        answered.setdefault(name, []).extend(seeds)


def labels_of(bench: Bench) -> dict[str, Any]:
    """Label by each outcome. Compare the labels of contested tokens, and the seconds taken."""
    labels, seconds = {}, {}
    for outcome in OUTCOMES:
        start = perf_counter()
        _, table = bench.trained(outcome, SEEDS[0])
        seconds[outcome] = perf_counter() - start
        contested = table.filter(pc.field("case") == "contested")
        labels[outcome] = contested["label"].to_numpy()
    pairs = combinations(labels, 2)
    return {
        "contested": len(labels["suffix"]),
        "labelled 1": {name: float(label_N.mean()) for name, label_N in labels.items()},
        "equal": {f"{a}, {b}": float((labels[a] == labels[b]).mean()) for a, b in pairs},
        "seconds": seconds,
    }


def main() -> None:
    project = Path.cwd()
    given = Bench.open(project)
    with (
        without_ground_truth(project, own_slm=False) as same_slm,
        without_ground_truth(project, own_slm=True) as from_questions,
    ):
        llm = Bench.open(same_slm).with_answers(given)
        answered = study(given, llm, Bench.open(from_questions))
        labels = labels_of(llm)
    tasks = given.shop.tasks
    results = {task: compared(answered, in_task_Q, OURS) for task, in_task_Q in tasks.items()}
    write_json(RESULTS / "unlabelled.json", {"labels": labels, "tasks": results})
    text = StringIO()
    Console(file=text, width=120).print(as_table(results, OURS))
    write_text(RESULTS / "unlabelled.md", text.getvalue())
    print(text.getvalue(), labels)


if __name__ == "__main__":
    main()
