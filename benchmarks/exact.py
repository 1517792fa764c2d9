"""Does a trained head make the LLM's own text cheaper than certainty or counting does?

    python -m benchmarks.exact --work FOLDER --name NAME

Run it in a project after `citer prepare`. The LLM alone answers the questions of preference,
validation and test, `references.most` of each at most. Heads learn on preference whether the SLM's
choice is the LLM's token. Each scorer gets the same thresholds: validation chooses one, and test
shows what it costs. An exact rule gives the LLM's text, so all costs follow from one forward of the
SLM over that text (`citer.pairs.exact`). Writes `benchmarks/results/NAME.{json,md}`. FOLDER keeps
the LLM's answers, also for another SLM, and gets the heads of the first seed as a router NAME. A
killed study continues there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer

from benchmarks.report import RESULTS, command, machine, markdown, write_results
from citer.config.params import Params, load_params
from citer.data.problems import Problem, read_problems, seeded
from citer.decoding.engine import Engine
from citer.errors import InputError
from citer.evaluation.cost import Batch, Prices, Trace
from citer.evaluation.methods import Row
from citer.evaluation.metrics import interval, resamples
from citer.evaluation.sweep import Result, request, sweep
from citer.executors.base import Executor
from citer.models.bundle import write_bundle
from citer.models.outlined import open_pair
from citer.models.pair import Pair, Text, length_buckets, predict
from citer.models.router import EXTRAS, Head, Router, features
from citer.pairs.exact import Forced, visits
from citer.pairs.profile import COLUMNS
from citer.rule import LLM, Rule
from citer.stages import paths
from citer.stages.folders import base_pair
from citer.stages.references import ALONE
from citer.storage.schema import TOP_LOGPROBS
from citer.storage.tables import digest
from citer.training.router import INFERENCE_ROWS, NARROW, train_head, train_logistic

SPLITS = ("preference", "validation", "test")
SEEDS = 3  # of the training of heads
# Under a cap, the LLM writes the first token.
EVERY = [Rule("every", at, 1.0, cap=cap) for at in range(1, 17) for cap in (0, at)]
RISKS = [Rule("risk", n / 50, 1.0, "own", cap=cap) for cap in (0, 16) for n in range(1, 50)]
Score = Callable[[np.ndarray], np.ndarray]  # score_N of feature_NF


class Read(NamedTuple):
    """The LLM's answers as the SLM reads them: Q answers with N tokens in all."""

    ids: Sequence[str]  # of the questions
    prompts: Sequence[int]  # tokens
    starts: Sequence[int]  # of the answers, and the end of the last one
    agrees_N: np.ndarray  # whether the SLM's choice is the LLM's token
    feature_NF: np.ndarray  # float16, as heads read them
    most: int  # tokens that an answer may have

    def answers(self, score_N: np.ndarray) -> list[Forced]:
        """Return all answers, with one score for each draft of the SLM."""
        parts = (np.split(each_N, self.starts[1:-1]) for each_N in (self.agrees_N, score_N))
        return [
            Forced(prompt, agrees.tolist(), {"own": own.tolist()}, [], self.most - len(own))
            for prompt, agrees, own in zip(self.prompts, *parts, strict=True)
        ]


class Scorer(NamedTuple):
    """What ends drafts: the rules that it may follow, and by training seed how it scores.

    `seeds` has the bytes that each score reads for a token.
    """

    name: str
    rules: Sequence[Rule | None]  # None is the bound: a visit where the SLM is wrong
    seeds: Mapping[Score, int]


def study(params: Params, work: Path, name: str, most: int | None) -> None:
    """Answer, read, train and compare, then write the table. Heads learn on `most` questions."""
    questions = {split: asked(params, split) for split in SPLITS}
    pair, executor = open_pair(base_pair(params), params.pair, params.workers)
    found = {
        split: _answered(pair, executor, params, own, work) for split, own in questions.items()
    }
    found["preference"] = found["preference"][:most]
    read = {split: _read(pair, own, params) for split, own in found.items()}
    heads = trained(read["preference"], params, pair.slm.device)
    made_for = pair.identity | {"prompts": params.prompts.model_dump(mode="json")}
    write_bundle(work / name, Router({name: own[0] for name, own in heads.items()}), made_for)
    about = {split: _described(own, read[split]) for split, own in found.items()}
    rows = compared([*scorers(heads, pair.vocabulary.size)], read, Prices.of(pair))
    heading = f"SLM weights {params.pair.slm_weights}. " + ". ".join(about.values()) + "."
    content = about | {"slm_weights": params.pair.slm_weights, "machine": machine()}
    text = f"{heading}\n\n{markdown(rows)}"
    write_results(RESULTS / name, content | {"scorers": rows}, text)


def asked(params: Params, split: str) -> list[Problem]:
    """Return the questions of a split, chosen by the seed. Raises InputError if there are few."""
    path = paths.problems(split)
    ranked = sorted(read_problems(path), key=lambda each: seeded(each.problem_id, params.seed))
    if len(ranked) < 2:
        raise InputError(f"{path}: {len(ranked)} questions, expected two or more")
    return ranked[: params.references.kept(split, len(ranked))]


def _answered(
    pair: Pair, executor: Executor, params: Params, asked: Sequence[Problem], work: Path
) -> Sequence[Result]:
    """Return the LLM's answers. The name of their folder tells what they depend on."""
    settings = pair.llm.card.digest, pair.prompts.digest, params.decode.model_dump_json()
    folder = work / digest(*settings, *(each.problem_id for each in asked))
    engine = Engine(pair, params.decode.slots, params.decode.max_new_tokens)
    [[run]] = sweep(executor, engine, asked, [ALONE], folder)
    return run.results


def _described(found: Sequence[Result], read: Read) -> str:
    split, right = found[0].problem.split, sum(each.correct for each in found)
    counted = f"{len(found)} questions, {right} right by the LLM, {len(read.agrees_N):,} tokens"
    return f"{split}: {counted}, {read.agrees_N.mean():.1%} of them the SLM's choice"


def _read(pair: Pair, found: Sequence[Result], params: Params) -> Read:
    """Let the SLM read the LLM's answers."""
    prompts = [request(each.problem, pair).prompt_ids for each in found]
    asked = zip(prompts, found, strict=True)
    texts = [Text([*prompt, *each.token_ids], len(prompt)) for prompt, each in asked]
    parts = dict[int, tuple[np.ndarray, np.ndarray]]()
    for batch in length_buckets([len(text.ids) for text in texts], params.score.batch_tokens):
        parts |= zip(batch, _columns(pair, [texts[n] for n in batch]), strict=True)
    agrees, features = zip(*(parts[n] for n in range(len(texts))), strict=True)
    starts = np.cumsum([0, *map(len, agrees)]).tolist()
    ids = [each.problem.problem_id for each in found]
    joined = np.concatenate(agrees), np.concatenate(features)
    return Read(ids, [*map(len, prompts)], starts, *joined, params.decode.max_new_tokens)


@torch.inference_mode()
def _columns(pair: Pair, texts: Sequence[Text]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return agrees_N and feature_NF of each text."""
    parts = [
        (part.logits_CV.argmax(-1) == part.given_C, features(part.hidden_CH, part.logits_CV).half())
        for part in predict(pair.slm, pair.vocabulary, texts)
    ]
    lengths = [len(text.ids) - text.first for text in texts]
    agrees, rows = (torch.cat(own).cpu().split(lengths) for own in zip(*parts, strict=True))
    return [(own.numpy(), row_NF.numpy()) for own, row_NF in zip(agrees, rows, strict=True)]


def trained(learnt: Read, params: Params, device: torch.device) -> dict[str, list[Head]]:
    """Return a head of each seed, by the names of a router's heads and `wide`."""
    question_N = np.repeat(learnt.ids, np.diff(learnt.starts))
    given = learnt.feature_NF, learnt.agrees_N, question_N, params.train
    seeds = range(params.seed, params.seed + SEEDS)
    return {
        "agree": [train_head(*given, seed, device, NARROW).head for seed in seeds],
        "wide": [train_head(*given, seed, device).head for seed in seeds],
        "agree_logistic": [train_logistic(*given, seed, device) for seed in seeds],
    }


def scorers(heads: Mapping[str, Sequence[Head]], vocabulary: int) -> Iterator[Scorer]:
    """Yield what ends drafts. The others are compared with the first one."""
    certainty: Mapping[str, Score] = {
        "probability": lambda row_NF: np.exp(row_NF[:, -TOP_LOGPROBS].astype(float)),
        "entropy": lambda row_NF: 1 - row_NF[:, -EXTRAS].astype(float) / log(vocabulary),
    }
    for name, score in certainty.items():
        yield Scorer(name, RISKS, {score: 0})
    yield Scorer("count", EVERY, {score: 0})
    for name, own in heads.items():
        yield Scorer(name, RISKS, {_by(head): head.weight_bytes for head in own})
    yield Scorer("a head that is never wrong", [None], {score: 0})


def _by(head: Head) -> Score:
    @torch.inference_mode()
    def score(row_NF: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(row_NF).split(INFERENCE_ROWS)
        return torch.cat([head.score(part.float()) for part in parts]).numpy()

    return score


def compared(found: Sequence[Scorer], read: Mapping[str, Read], prices: Prices) -> list[Row]:
    """Return what each scorer costs on test, LLM alone = 1, and how far it is above certainty."""
    test, drawn_RQ = read["test"], resamples(np.ones(len(read["test"].ids)))
    alone = Tried.of(LLM, test.answers(np.ones(len(test.agrees_N))), prices)
    rows, certain_R = list[Row](), np.ones(())
    for scorer in found:
        seeds = [chosen(scorer.rules, *seed, read, prices) for seed in scorer.seeds.items()]
        moved_R = np.mean([drawn_RQ @ own.moved_Q for own, _ in seeds], 0)
        cost_R = moved_R / (drawn_RQ @ alone.moved_Q)
        certain_R = certain_R if rows else cost_R
        row = {
            "drafts end by": scorer.name,
            "chosen": ", ".join(dict.fromkeys(_short(own.rule) for own, _ in seeds)),
            "bytes": interval(cost_R),
            "above certainty": interval(cost_R / certain_R - 1),
            "by seed": ", ".join(f"{own.in_batch(alone, COLUMNS[0]):.4f}" for own, _ in seeds),
            "best on test": np.mean([least for _, least in seeds]) / alone.moved_Q.sum(),
        }
        shared = {
            str(batch): float(np.mean([own.in_batch(alone, batch) for own, _ in seeds]))
            for batch in COLUMNS[1:]
        }
        rows.append(row | shared)
    return rows


def _short(rule: Rule | None) -> str:
    return str(replace(rule, audit=0.0, by="")) if rule else ""


class Tried(NamedTuple):
    """A rule, and what the answers to Q questions move by it."""

    rule: Rule | None
    prices: Prices
    traces: Sequence[Trace]
    moved_Q: np.ndarray

    @classmethod
    def of(cls, rule: Rule | None, answers: Sequence[Forced], prices: Prices) -> "Tried":
        traces = [Trace.of(own.prompt_len, len(own.agrees), visits(rule, own)) for own in answers]
        moved = [prices.moved(trace.slm, trace.llm) for trace in traces]
        return cls(rule, prices, traces, np.array(moved))

    def in_batch(self, alone: "Tried", batch: Batch) -> float:
        """Return the bytes that all answers move in a batch, the LLM alone = 1."""
        own, other = (each.prices.moved(*batch.work(each.traces)) for each in (self, alone))
        return own / other


def chosen(
    rules: Sequence[Rule | None],
    score: Score,
    weight_bytes: int,
    read: Mapping[str, Read],
    prices: Prices,
) -> tuple[Tried, float]:
    """Return the rule that validation chooses, tried on test, and the fewest bytes there."""
    prices = replace(prices, slm_weights=prices.slm_weights + weight_bytes)
    scored = (read[split].answers(score(read[split].feature_NF)) for split in SPLITS[1:])
    validation, test = ([Tried.of(rule, own, prices) for rule in rules] for own in scored)
    best = min(range(len(rules)), key=lambda n: validation[n].moved_Q.sum())
    return test[best], min(own.moved_Q.sum() for own in test)


def main(
    work: Annotated[Path, typer.Option(help="Folder that keeps the LLM's answers.")],
    name: Annotated[str, typer.Option(help="Of the files of results.")] = "exact",
    learn: Annotated[int | None, typer.Option(min=2, help="Questions to learn from.")] = None,
) -> None:
    """Compare what ends the drafts of exact rules: certainty, counting and trained heads."""
    study(load_params(), work, name, learn)


if __name__ == "__main__":
    command(main)
