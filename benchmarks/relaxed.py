"""Which rules that change the text are the cheapest for their accuracy, on a pair of yours?

    python -m benchmarks.relaxed --work FOLDER --name NAME --questions N

Run it in a project after `citer label 1`. The heads are trained by the stages `router0` and `train`
with SEEDS seeds. Test questions are answered by all candidates of params.yaml, PART at a time. Then
groups of rules are compared by the cost at which they reach shares of the LLM's right answers. A
group may mix two of its rules, or one with a model alone; its best mix is picked on these
questions. Writes `benchmarks/results/NAME.{json,md}`. FOLDER keeps the answers: a killed study
continues there, and so does one with more questions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple, Self

import numpy as np
import torch
import typer

from benchmarks.exact import asked
from benchmarks.report import RESULTS, command, machine, markdown, write_results
from citer.config.params import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.splits import held_out
from citer.decoding.policy import Scorer, always_slm, top_probability
from citer.evaluation.candidates import candidates
from citer.evaluation.choice import upper_bound
from citer.evaluation.cost import Batch, counted
from citer.evaluation.measure import ACCURACY
from citer.evaluation.methods import SCORERS, Row
from citer.evaluation.metrics import Frontier, interval, resamples
from citer.evaluation.study import Study
from citer.evaluation.sweep import Line, Run
from citer.models.bundle import read_bundle
from citer.models.outlined import open_pair
from citer.rule import Drafter, Rule
from citer.stages import paths, router0, train
from citer.stages.folders import finetuned_pair
from citer.storage.tables import digest

SEEDS = 3  # of the training of heads
PART = 96  # questions; in small parts, most slots wait for the longest answers
SHARES = (0.9, MIDDLE := 0.95, 0.99)  # of the LLM's right answers
HEADS = ("stand", "narrow", "logistic", "co_llm", "co_llm_logistic")
DRAFTERS: Sequence[Drafter] = ("slm", "both")
ALL = -1  # the seed of what is not trained
Has = Callable[[Rule], bool]
Lines = Sequence[tuple[list[int], Frontier]]  # of each seed, with the numbers of their rules


def _learnt(rule: Rule) -> str:
    """Return what the scorer of a rule has learnt, empty for none."""
    return SCORERS[rule.by].labels if rule.by in SCORERS else ""


PREFERENCES, LIKELIHOOD = "preferences", "Co-LLM's likelihood"
GROUPS: Mapping[str, Has] = {
    "CITER: preferences, no audit": lambda it: _learnt(it) == PREFERENCES and not it.audit,
    "the same, the paper's wide head": lambda it: it.by == "stand" and not it.audit,
    "Co-LLM: likelihood, no audit": lambda it: _learnt(it) == LIKELIHOOD and not it.audit,
    "certainty, no audit": lambda it: not _learnt(it) and not it.audit,
    "preferences, any audit below 1": lambda it: _learnt(it) == PREFERENCES,
    "likelihood, any audit below 1": lambda it: _learnt(it) == LIKELIHOOD,
    "certainty or count, any audit below 1": lambda it: not _learnt(it) and not it.exact,
    "all that change the text": lambda it: not it.exact,
    "the LLM's text, by certainty": lambda it: it.exact,
}
BESIDE = (
    ("CITER: preferences, no audit", "Co-LLM: likelihood, no audit"),
    ("Co-LLM: likelihood, no audit", "certainty, no audit"),
    ("preferences, any audit below 1", "CITER: preferences, no audit"),
    ("certainty or count, any audit below 1", "certainty, no audit"),
    ("preferences, any audit below 1", "likelihood, any audit below 1"),
    ("preferences, any audit below 1", "certainty or count, any audit below 1"),
    ("all that change the text", "the LLM's text, by certainty"),
)


class Seeded(NamedTuple):
    """Candidates with the heads of one seed, or with none (`ALL`)."""

    seed: int
    line: Line


def study(params: Params, work: Path, name: str, questions: int) -> None:
    """Train, answer part by part, compare, and write what was found."""
    pair, executor = open_pair(finetuned_pair(params), params.pair, params.workers)
    settings = params.model_dump_json(include={"pair", "decode", "seed", "evaluate", "train"})
    inputs = paths.preferences(1), paths.SLM_TOKENS, paths.LLM_TOKENS
    folder = work / digest(settings, *inputs)
    asking = Study(executor, pair, (), (), (), ACCURACY, params, folder)
    lines = [*_lines(asking, params)]
    seeds = [ALL, ALL, *chain.from_iterable([own.seed] * len(own.line.rules) for own in lines)]
    problems = asked(params, "test")[:questions]
    starts = range(0, len(problems), PART)
    parts = [_answered(asking, problems[start : start + PART], lines) for start in starts]
    _write(RESULTS / name, params, seeds, [*map(_joined, zip(*parts, strict=True))])


def _lines(asking: Study, params: Params) -> Iterator[Seeded]:
    """Yield all candidates. Certainty alone has exact ones."""
    untrained: Mapping[str, Scorer] = {"": always_slm, "probability": top_probability}
    trained = _trained(params, asking.pair.slm.device)
    questions, share = read_problems(paths.referenced("preference")), params.train.holdout
    for seed, scorers in {ALL: untrained, **trained}.items():
        unlearnt = held_out(questions, params.seed if seed == ALL else seed, share)
        taus = replace(asking, holdout=unlearnt).taus(scorers)
        for line in candidates(scorers, taus, params.evaluate, DRAFTERS):
            rules = [rule for rule in line.rules if not rule.exact or rule.by == "probability"]
            yield Seeded(seed, line._replace(rules=rules))


def _trained(params: Params, device: torch.device) -> dict[int, Mapping[str, Scorer]]:
    """Train the heads of each seed. The settings' own comes last: its routers stay."""
    found: dict[int, Mapping[str, Scorer]] = {}
    for seed in reversed(range(params.seed, params.seed + SEEDS)):
        router0.run(_seeded(params, seed))
        train.run(_seeded(params, seed), 1)
        heads = read_bundle(paths.router(1))[0].to(device).heads
        found[seed] = {name: heads[name] for name in HEADS}
    return found


def _seeded(params: Params, seed: int) -> Params:
    return params.model_copy(update={"seed": seed})


def _answered(asking: Study, part: Sequence[Problem], lines: Sequence[Seeded]) -> list[Run]:
    alone = asking.alone_on(part)
    own = asking.answered(part, [each.line for each in lines])
    return [alone.slm, alone.llm, *chain.from_iterable(own)]


def _joined(parts: Sequence[Run]) -> Run:
    results = [*chain.from_iterable(part.results for part in parts)]
    return replace(parts[0], results=results)


def _write(target: Path, params: Params, seeds: Sequence[int], runs: Sequence[Run]) -> None:
    batches = [each for each in counted(params.evaluate, params.serve) if each.slots > 1]
    answers = Answers.of(seeds, runs, [each for each in batches if each.schedule == "delayed"])
    frontiers = {name: answers.frontiers(has) for name, has in GROUPS.items()}
    groups = [answers.group(*each) for each in frontiers.items()]
    beside = [answers.beside(*((name, frontiers[name]) for name in pair)) for pair in BESIDE]
    rules = [*answers.rules(params.evaluate.delta)]
    kept = [own for own in rules if own["bound"] <= params.evaluate.epsilon]
    shown = ", ".join(f"`{own['rule']}` {own['b1']:.3f}" for own in kept[:5]) or "none"
    slm, llm = answers.correct_VQ[:2].sum(1)
    heading = (
        f"{len(runs[0].results)} questions, {llm:.0f} right by the LLM, {slm:.0f} by the SLM. "
        f"{len(runs)} rules. SLM weights {params.pair.slm_weights}. The cheapest rules that keep "
        f"the promise, each by itself: {shown}."
    )
    text = "\n".join([heading, "", markdown(groups), markdown(beside)])
    content = {"machine": machine(), "groups": groups, "beside": beside, "rules": rules}
    write_results(target, content, text)


class Answers(NamedTuple):
    """The answers by V rules to Q questions, and their costs in R resamples, the LLM alone = 1.

    The first two rules are those of the SLM and of the LLM alone.
    """

    seed_V: Sequence[int]
    rule_V: Sequence[Rule]
    correct_VQ: np.ndarray
    right_RV: np.ndarray
    cost_RV: np.ndarray
    shared: Mapping[str, np.ndarray]  # cost_V by batch

    @classmethod
    def of(cls, seeds: Sequence[int], runs: Sequence[Run], batches: Sequence[Batch]) -> Self:
        results = [run.results for run in runs]
        correct_VQ = np.array([[own.correct for own in each] for each in results], float)
        moved_VQ = np.array(
            [
                [run.prices.moved(own.trace.slm, own.trace.llm) for own in run.results]
                for run in runs
            ]
        )
        drawn_RQ = resamples(np.full(correct_VQ.shape[1], True)).astype(float)
        moved_RV = drawn_RQ @ moved_VQ.T
        moved = {str(batch): np.array([run.moved(batch) for run in runs]) for batch in batches}
        shared = {name: moved_V / moved_V[1] for name, moved_V in moved.items()}
        costs = moved_RV / moved_RV[:, [1]], shared
        return cls(seeds, [run.rule for run in runs], correct_VQ, drawn_RQ @ correct_VQ.T, *costs)

    def rules(self, delta: float) -> Iterator[Row]:
        """Yield what is known of each rule, the cheapest first, with the bound of its risk."""
        llm_Q = self.correct_VQ[1]
        for number in np.argsort(self.cost_RV[0]).tolist():
            gained, lost = ((self.correct_VQ[number] - llm_Q == sign).sum() for sign in (1, -1))
            yield {
                "seed": self.seed_V[number],
                "rule": f"{self.rule_V[number]:.4g}",
                "b1": round(float(self.cost_RV[0, number]), 4),
                "lost": int(lost),
                "gained": int(gained),
                "bound": round(upper_bound(lost, llm_Q.sum(), delta), 4),
            }

    def frontiers(self, has: Has) -> Lines:
        """Return a group's rules with both models alone, and their frontier, for each seed."""
        own = [n for n, rule in enumerate(self.rule_V) if n > 1 and has(rule)]
        seeds = sorted({self.seed_V[n] for n in own} - {ALL}) or [ALL]
        sets = [[0, 1, *(n for n in own if self.seed_V[n] in (ALL, seed))] for seed in seeds]
        return [(each, Frontier.of(self.cost_RV[:, each], self.right_RV[:, each])) for each in sets]

    def cost(self, lines: Lines, share: float) -> np.ndarray:
        """Return cost_SR: what a group moves for a share of the LLM's right answers, by seed."""
        return np.array([line.cost_for(share * self.right_RV[:, 1]) for _, line in lines])

    def group(self, name: str, lines: Lines) -> Row:
        """Return what a group costs, as the mean over seeds. In batches, nothing is resampled."""
        row: Row = {"rules": name}
        row |= {f"{share:.0%}": interval(self.cost(lines, share).mean(0)) for share in SHARES}
        by_seed = self.cost(lines, MIDDLE)[:, 0]
        row[f"{MIDDLE:.0%}, by seed"] = ", ".join(f"{each:.3f}" for each in by_seed)
        places = np.linspace(self.cost_RV[:, 0], 1, 41)
        right_R = np.mean([line.right_for(cost_R) for _, line in lines for cost_R in places], 0)
        row["accuracy, mean over costs"] = interval(right_R / self.correct_VQ.shape[1])
        right_1V = self.right_RV[:1]
        for batch, cost_V in self.shared.items():
            own = (Frontier.of(cost_V[None, each], right_1V[:, each]) for each, _ in lines)
            row[f"{MIDDLE:.0%}, {batch}"] = fmean(
                line.cost_for(MIDDLE * right_1V[:, 1])[0] for line in own
            )
        return row

    def beside(self, one: tuple[str, Lines], other: tuple[str, Lines]) -> Row:
        """Return by how much a group's cost is above another's."""
        row: Row = {"rules": one[0], "above": other[0]}
        for share in SHARES:
            cost_R, other_R = (self.cost(lines, share).mean(0) for _, lines in (one, other))
            row[f"above at {share:.0%}"] = interval(cost_R / other_R - 1)
        return row


def main(
    work: Annotated[Path, typer.Option(help="Folder that keeps the answers.")],
    name: Annotated[str, typer.Option(help="Of the files of results.")] = "relaxed",
    questions: Annotated[int, typer.Option(min=1, help="Of the test split, at most.")] = 192,
) -> None:
    """Compare the rules that change the text: CITER's, Co-LLM's, and by certainty."""
    study(load_params(), work, name, questions)


if __name__ == "__main__":
    command(main)
