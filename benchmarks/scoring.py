"""Compare scoring with its bare forwards, and a sweep of thresholds with one threshold."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.pairs import Subject
from benchmarks.race import Method, Race, race
from benchmarks.report import Finding, Target, of_two
from citer.config.params import load_params
from citer.data.prompts import Encoded
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.evaluation.rivals.untrained import low_entropy
from citer.executors.base import Unit
from citer.executors.choose import deal, executor_for
from citer.labelling.scoring import half, length_buckets, score
from citer.models.forced import padded_batch
from citer.models.pair import LanguageModel
from citer.progress import Advance
from citer.rule import SLM, Rule

QUESTIONS = 256  # in the sweep
EXAMPLES = {"embedded": 256}  # to score; other pairs score 16
LOGIT_ROWS = 512  # computed at a time


def against_forwards(subject: Subject) -> list[Finding]:
    """Row 6: reference tokens per second of scoring / of the same batches' forwards alone."""
    examples = subject.examples(EXAMPLES.get(subject.name, 16))
    batch_tokens = load_params().score.batch_tokens if subject.name == "embedded" else 2048
    return [
        _scoring(subject, model, examples, batch_tokens)
        for model in (subject.pair.slm, subject.pair.local_llm)
    ]


def _scoring(
    subject: Subject, model: LanguageModel, examples: Mapping[str, Encoded], batch_tokens: int
) -> Finding:
    tokens = sum(len(example.reference_ids) for example in examples.values())
    raw = raw_forwards(model, examples, batch_tokens)

    def scored() -> int:
        score(half(model, subject.pair.vocabulary), examples, batch_tokens, lambda _: None)
        return tokens

    def forwarded() -> int:
        raw()
        return tokens

    timed = race(f"score {subject.name} {model.name}", {"score": scored, "raw": forwarded})
    what = f"scoring / raw forwards, {model.name}"
    return of_two(6, what, subject.name, timed, Target("≥", 0.85))


def raw_forwards(
    model: LanguageModel, examples: Mapping[str, Encoded], batch_tokens: int
) -> Callable[[], int]:
    """Return a function that runs the forwards of the scorer's batches.

    It computes logits only where a reference token is predicted, and returns their number.
    """
    encoded = list(examples.values())
    batches = []
    for bucket in length_buckets([len(p) + len(r) - 1 for p, r in encoded], batch_tokens):
        batch = [encoded[index] for index in bucket]
        inputs = padded_batch([[*p, *r[:-1]] for p, r in batch], model.device)
        starts = torch.tensor([[len(p) - 1] for p, _ in batch], device=model.device)
        position_T = torch.arange(inputs["input_ids"].shape[1], device=model.device)
        batches.append((inputs, inputs["attention_mask"].bool() & (position_T >= starts)))

    @torch.inference_mode()
    def run() -> int:
        predicted = 0
        for inputs, wanted_BT in batches:
            out = model.network.base_model(**inputs, use_cache=False)
            hidden_NH = out.last_hidden_state[wanted_BT]
            predicted += len(hidden_NH)
            for hidden_CH in hidden_NH.split(LOGIT_ROWS):
                model.logits(hidden_CH)
        return predicted

    return run


def sweep_against_one(subject: Subject) -> list[Finding]:
    """Row 8: seconds of a sweep over all thresholds of `evaluate` / of its slowest threshold.

    The SLM's certainty replaces a trained router. The thresholds are quantiles of its scores at
    the LLM fractions of params.yaml.
    """
    params = load_params().evaluate
    engine = Engine(subject.pair, params.slots, params.max_new_tokens, delayed=True)
    requests = subject.requests(QUESTIONS)
    rules = _rules(engine, requests, params.llm_fractions)
    timed = race(f"sweep {subject.name}", _sweep_methods(engine, requests, rules))
    what = f"{len(rules)}-point sweep / its slowest point, {len(requests)} questions"
    return [_against_slowest(what, subject.name, timed)]


def _rules(engine: Engine, requests: Sequence[Request], fractions: Sequence[float]) -> list[Rule]:
    alone = engine.decode(requests, Policy(low_entropy, SLM))
    scores = [score for answer in alone for score in answer.scores]
    taus = np.quantile(scores, fractions[1:-1], method="midpoint").tolist()
    return [Rule("score", tau) for tau in (0.0, *taus, 1.0)]


def _sweep_methods(
    engine: Engine, requests: Sequence[Request], rules: Sequence[Rule]
) -> Mapping[str, Method]:
    """Return the sweep, and each of its thresholds alone, as methods to time."""

    def run(rules: Sequence[Rule]) -> int:
        work = partial(_answered, engine, [Policy(low_entropy, rule) for rule in rules])
        executor = executor_for(engine.pair)
        units = [Unit(f"part {n}", part) for n, part in enumerate(deal(requests, executor.workers))]
        for _ in executor.run(work, units, lambda _: None):
            pass
        return 1

    return {"sweep": partial(run, rules)} | {f"{rule:.4g}": partial(run, [rule]) for rule in rules}


def _answered(
    engine: Engine, policies: Sequence[Policy], requests: Sequence[Request], advance: Advance
) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in engine.sweep(requests, policies)]


def _against_slowest(what: str, name: str, timed: Race) -> Finding:
    points = [method for method in timed.speeds if method != "sweep"]
    slowest = min(points, key=timed.speed)
    total = sum(1 / timed.speed(point) for point in points)
    details = {
        "sweep seconds": 1 / timed.speed("sweep"),
        "slowest seconds": 1 / timed.speed(slowest),
        "all points one by one / sweep": total * timed.speed("sweep"),
    }
    return Finding(8, what, name, timed.ratio(slowest, "sweep"), Target("≤", 3.5), details)
