"""Time labels of contested tokens by `suffix` against rollouts, at any pair's sizes.

The embedded pair labels the LLM's own references to a few questions. The subject's pair replays the
forwards of both models with the same shapes. Grading, which `suffix` saves, is not timed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from benchmarks.floor import Floor, Forward, recorded
from benchmarks.labelling import both_halves, toy_problems
from benchmarks.pairs import Subject, embedded
from benchmarks.race import race
from benchmarks.report import Finding, Target
from citer.config.params import LabelParams, load_params
from citer.data.problems import Problem
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy
from citer.evaluation.rivals import low_entropy
from citer.labelling.contests import Outcome
from citer.labelling.labeller import Labeller
from citer.labelling.rollout import Rollout
from citer.labelling.suffix import Suffix
from citer.models.graphs import no_graphs
from citer.models.pair import Pair

PROBLEMS = 16
Label = Callable[[Outcome], pa.Table]


def against_rollouts(subject: Subject) -> list[Finding]:
    """Row 13: how many times faster `suffix` is than rollouts, by the policy of the rollouts."""
    params = load_params()
    pair, log = recorded(embedded().pair)
    label = _labels(pair, _by_llm(pair, toy_problems(params, PROBLEMS)))
    forwards: dict[str, list[Forward]] = {}
    for name, outcome in _outcomes(pair, params.label).items():
        log.clear()
        label(outcome)
        forwards[name] = [*log]
    ours, *others = forwards
    timed = race(f"labels, {subject.name}", _replays(subject, forwards))
    return [
        Finding(
            13,
            f"labels by suffix / by rollouts, {name}",
            subject.name,
            timed.ratio(ours, name),
            Target("≥", 5),
            timed.details("runs"),
        )
        for name in others
    ]


def _outcomes(pair: Pair, limits: LabelParams) -> dict[str, Outcome]:
    engine = Engine(pair, limits.slots, limits.max_new_tokens, delayed=True, make_graphs=no_graphs)
    policies = {"router 0": SLM_ALONE, str(limits.rule): Policy(low_entropy, limits.rule)}
    rollouts = {name: Rollout(engine, policy, limits.tie) for name, policy in policies.items()}
    return {"suffix": Suffix(pair, limits.slots), **rollouts}


def _by_llm(pair: Pair, problems: list[Problem]) -> dict[str, Problem]:
    """Replace each reference by the LLM's greedy answer. Leaves out answers that are cut off."""
    by_id = {problem.problem_id: problem for problem in problems}
    requests = [Request(key, tuple(pair.prompts.prompt_ids(p))) for key, p in by_id.items()]
    answers = Engine(pair, 32, 128, make_graphs=no_graphs).decode(requests, LLM_ALONE)
    texts = {each.key: pair.text(each.token_ids) for each in answers if not each.truncated}
    return {
        key: replace(by_id[key], reference=text, written_by="llm") for key, text in texts.items()
    }


def _labels(pair: Pair, problems: Mapping[str, Problem]) -> Label:
    """Return a function that labels the problems by an outcome. The tokens are scored once."""
    examples = pair.prompts.encode_all(problems.values())
    tokens = both_halves(pair, examples, batch_tokens=16_384)
    return lambda outcome: Labeller(problems, examples, outcome, 1).label(tokens, lambda _: None)


def _replays(
    subject: Subject, forwards: Mapping[str, list[Forward]]
) -> dict[str, Callable[[], float]]:
    def replayed(floor: Floor) -> float:
        floor.run()
        return 1

    return {
        name: partial(replayed, Floor(subject.pair, subject.head, ran))
        for name, ran in forwards.items()
    }
