"""Compare routers that learnt from the audits of served answers with one from references.

    python -m benchmarks.audits        # after `citer run`

Writes `benchmarks/results/audits.{json,md}`. The last run's router answers the preference questions
by `risk 0.9 audit β`, and new routers learn from those audits alone, without a right answer or a
rollout. `references` is router 2, from references and rollouts; `both` adds the audits of β = .1.
Labels depend on the odds alone (`citer.data.audited`), so β decides only which tokens are audited.
The served answers are the same for all seeds, which are those of training.

f95: the LLM fraction for 95 % of the LLM's accuracy under CITER's rules, with thresholds as in
`benchmarks.labels`. c95: the cost at batch 1 for it, under `risk ρ audit 0.1`. Intervals are those
of `benchmarks.fractions`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.audited import AUDIT, by_risk
from benchmarks.fractions import KEPT, Answered, as_table, compared, note, with_gaps
from benchmarks.workshop import SEEDS, Workshop, thresholds
from citer.data.audited import load_audited
from citer.data.problems import Problem, first_id
from citer.data.tokens import read_features, read_tokens
from citer.evaluation.paired import resamples
from citer.evaluation.rivals import by_score, low_entropy
from citer.evaluation.sweep import Method, by_head
from citer.labelling.labeller import Labeller
from citer.labelling.scoring import score_half
from citer.labelling.suffix import Suffix
from citer.models.bundle import read_bundle
from citer.progress import progress
from citer.rule import Rule
from citer.serving.deployment import Deployment
from citer.serving.generate import line
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.schema import AUDITED
from citer.storage.tables import replacing, write_json, write_table
from citer.training.router import Trained, train_head

OURS = "references"
SERVED = {f"audits, β = {beta}": Rule("risk", 0.9, beta) for beta in (AUDIT, 1)}
RESULTS = Path("benchmarks/results")


class Lessons(NamedTuple):
    """What a router learns from: N labelled tokens. Tokens of one question have one group."""

    feature_NF: np.ndarray
    label_N: np.ndarray
    group_N: np.ndarray

    @classmethod
    def of(cls, folder: Path, rows: pa.Table, label_N: np.ndarray) -> "Lessons":
        """Read the features of `rows`. An audited answer's id begins with its question's."""
        question_N = [first_id(key) for key in rows["problem_id"].to_pylist()]
        return cls(read_features(folder, rows), label_N, np.array(question_N))

    def and_(self, other: "Lessons") -> "Lessons":
        return Lessons(*map(np.concatenate, zip(self, other, strict=True)))


def lessons_of_audits(shop: Workshop, rule: Rule) -> Lessons:
    """Serve answers to the preference questions, and label their tokens by their audits."""
    last = max(int(name) for name in shop.params.iterations)
    router, _ = read_bundle(paths.router(last))
    own, limits = router.to(shop.pair.slm.device), shop.params.evaluate
    deployment = Deployment(shop.pair, own, rule, limits.slots, limits.max_new_tokens)
    asked, decode = list(shop.preference.values()), shop.pair.tokenizer.decode
    rows = [line(reply, decode)["audits"] for reply in deployment.replies(asked)]
    with TemporaryDirectory() as name:
        table = Path(name, "served.parquet")
        write_table(table, pa.Table.from_pylist(rows, AUDITED), AUDITED, {"rule": str(rule)})
        return _labelled(shop, load_audited(table, shop.params.prepare.tasks), Path(name, "slm"))


def _labelled(shop: Workshop, problems: Sequence[Problem], tokens: Path) -> Lessons:
    """Score the answers with both models, in the folder `tokens`, and label what was audited."""
    params, folders = shop.params, finetuned_pair(shop.params)
    score_half(
        "slm", folders, problems, tokens / "slm", params.score, params.pair, params.workers
    )
    score_half(
        "llm", folders, problems, tokens / "llm", params.score, params.pair, params.workers
    )
    examples = shop.pair.prompts.encode_all(problems)
    scored = read_tokens(tokens / "slm", tokens / "llm", examples)
    by_id = {problem.problem_id: problem for problem in problems}
    unused = Suffix(shop.pair, slots=1)  # no token of an audited answer is contested
    labels = Labeller(by_id, examples, unused, 1).label(scored, lambda _: None)
    return Lessons.of(tokens / "slm", labels, labels["label"].to_numpy())


def study(shop: Workshop, lessons: Mapping[str, Lessons]) -> tuple[Answered, Answered]:
    """Answer the test questions with each router, by CITER's rules and by audited ones."""
    f95: Answered = {}
    c95: Answered = {}

    def take(method: Method, taus: Sequence[float]) -> None:
        answered = shop.answer(method, {"f95": by_score(taus), "c95": by_risk(AUDIT)})
        note(f95, {method.name: answered["f95"]})
        note(c95, {method.name: answered["c95"]})

    take(Method("entropy", low_entropy), shop.answer_thresholds())
    with progress("audits", len(SEEDS), "seeds") as advance:
        for seed in SEEDS:
            for name, trained in _routers(shop, lessons, seed).items():
                take(by_head(name, trained.head), thresholds(trained))
            advance(1)
    return f95, c95


def _routers(shop: Workshop, lessons: Mapping[str, Lessons], seed: int) -> dict[str, Trained]:
    first = shop.train_on(shop.first_labels, seed)
    second = shop.second_labels(first.head, shop.params.label.rule)
    given = Lessons.of(paths.SLM_TOKENS, second, second["label"].to_numpy())
    [audits, *_] = lessons.values()
    all_lessons = {OURS: given, "both": given.and_(audits), **lessons}
    params = shop.params.train.model_copy(update={"seed": seed})
    device = shop.pair.slm.device
    return {name: train_head(*each, params, device) for name, each in all_lessons.items()}


def summary(f95: Answered, c95: Answered, in_task_Q: np.ndarray) -> dict[str, Any]:
    """Compute f95 and c95 of each method, and how far they are above those of `OURS`."""
    drawn_RQ = resamples(in_task_Q)
    costs = {
        name: np.mean([outcomes.cost_for(KEPT, drawn_RQ) for outcomes in seeds], axis=0)
        for name, seeds in c95.items()
    }
    return compared(f95, in_task_Q, OURS) | with_gaps("c95", costs, OURS)


def main() -> None:
    shop = Workshop.open()
    lessons = {name: lessons_of_audits(shop, rule) for name, rule in SERVED.items()}
    f95, c95 = study(shop, lessons)
    results = {task: summary(f95, c95, in_task_Q) for task, in_task_Q in shop.tasks.items()}
    counts = {name: {"labels": len(y), "kept": y.mean()} for name, (_, y, _) in lessons.items()}
    write_json(RESULTS / "audits.json", {"labels": counts, "tasks": results})
    table = as_table(results, OURS, ["f95", "c95"])
    with replacing(RESULTS / "audits.md") as aside, aside.open("w") as file:
        Console(file=file, width=160).print(table)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
