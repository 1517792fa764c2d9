"""Let each model alone answer a few validation questions, before the stages that take long."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from math import log
from statistics import fmean
from typing import NamedTuple

import pyarrow as pa

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.references import TRAINING, asked, asked_of_llm, read_of
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, routed
from citer.errors import InputError
from citer.evaluation.methods import label
from citer.evaluation.sweep import request
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.models.room import check_examples, check_longest, check_room
from citer.models.router import Router
from citer.pairs.budget import Workload, dearest, in_range, in_words, total
from citer.pairs.exact import (
    COLUMNS,
    SEVERAL,
    Priced,
    agreement,
    best,
    priced,
    read_by_slm,
    seconds,
    table,
)
from citer.pairs.hints import reason_to_stop, warnings
from citer.pairs.probe import (
    Asked,
    Reply,
    ask,
    choose_questions,
    examples,
    overview,
    reply_rows,
    speed,
)
from citer.progress import progress, say
from citer.rule import Rule
from citer.stages import paths
from citer.stages.budget import keep
from citer.stages.folders import base_pair
from citer.stages.traffic import Splits, usable
from citer.storage.schema import PROBED, SPLITS
from citer.storage.tables import remove, write_json, write_table

TIMED = 3  # questions that are answered one by one
DRAFTS = 16  # of a request at most, inside vLLM
ALONE = {"slm": SLM_ALONE, "llm": LLM_ALONE}


def run(params: Params) -> None:
    """Write the answers of both models, print what they show, and stop a hopeless run.

    Raises InputError if the LLM is certainly below the floor. The answers are written even then.
    Raises it before any model is loaded if a later stage would refuse a row.
    """
    splits = usable({split: read_problems(paths.problems(split)) for split in SPLITS}, params)
    for split in TRAINING:
        splits[split] = read_of(splits[split], params.references.source)
    folders = base_pair(params)
    _check_rows(splits, folders, params)
    remove(paths.PASSED)
    chosen = choose_questions(splits["validation"], params.seed)
    pair = load_pair(folders, params.pair)
    engine = Engine(pair, min(params.decode.slots, len(chosen)), params.decode.max_new_tokens)
    slm, llm = _ask(engine, chosen, "slm"), _ask(engine, chosen, "llm")
    rows = [*reply_rows("slm", slm.replies), *reply_rows("llm", llm.replies)]
    write_table(paths.PROBED, pa.Table.from_pylist(rows, PROBED), PROBED, {})
    say(overview(slm.replies, llm.replies))
    say(examples(llm.replies))
    say(speed(slm.pace, llm.pace, engine.slots))
    found = _show_exact(pair, llm.replies, params)
    routing = _show_seconds(engine, llm.replies, best(found, COLUMNS[0]))
    if all(each.costs[COLUMNS[0]] >= 1 for each in found if each.rule):
        say("probe: no such rule moves fewer bytes than the LLM alone", style="yellow")
    by_slm = [each for each in found if each.rule and each.rule.draft == "slm"]
    say(f"or in vLLM: {vllm_line(pair, best(by_slm, COLUMNS[0]))}")
    _show_forecast(_workload(splits, slm, llm, routing, params), params)
    _check(slm.replies, llm.replies, params)
    write_json(paths.PASSED, {"passed": True})


def _check_rows(splits: Splits, folders: PairFolder, params: Params) -> None:
    """Encode each row as the later stages do. Embedded rows are alike: validation has enough.

    An answer that the LLM will write for a training row must have room in it.
    """
    own = {split: [p for p in rows if p.source != "toy"] for split, rows in splits.items()}
    questions = [*splits["validation"], *own["test"]]
    encode, most = folders.prompts.encode_all, params.decode.max_new_tokens
    check_room(paths.named(questions, paths.problems), folders, most)
    check_examples(encode(own["preference"]), folders.context, most)
    by_llm = asked(splits["sft"], params.references.source)
    for sft, written in ((own["sft"], 0), (by_llm, most)):
        if sft and params.finetune.epochs:
            check_longest(sft, [*encode(sft).values()], params.finetune.max_length, written)


def _check(slm: Sequence[Reply], llm: Sequence[Reply], params: Params) -> None:
    """Print warnings. Raises InputError if the LLM is certainly below the floor.

    With `against: llm` there is no floor, since given answers decide nothing.
    """
    floor, prompt = params.evaluate.llm_floor, params.pair.prompt
    if params.evaluate.against == "llm":
        floor = 0.0
    for warning in warnings(slm, llm, floor, prompt):
        say(f"probe: {warning}", style="yellow")
    if reason := reason_to_stop(llm, floor, prompt):
        raise InputError(f"probe: {reason}")


def _ask(engine: Engine, chosen: Sequence[Problem], model: str) -> Asked:
    with progress(f"{label(model)} on validation", len(chosen), "answers") as advance:
        return ask(engine, chosen, ALONE[model], advance)


def _show_exact(pair: Pair, replies: Sequence[Reply], params: Params) -> list[Priced]:
    """Show and return what the LLM's own text costs without any training."""
    limits = params.score.batch_tokens, params.decode.max_new_tokens
    answers = read_by_slm(pair, replies, *limits)
    found, measured = priced(pair, answers), agreement(answers)
    write_json(paths.AGREEMENT, asdict(measured))
    where = f"{measured.agreement:.1%} of {measured.tokens:,} positions"
    say(f"the SLM's choice is the LLM's token at {where}")
    say(table(found))
    return found


class _Routing(NamedTuple):
    routed: float  # seconds of an exact rule in a batch, LLM alone = 1
    growth: float  # of n rules together, less 1, one rule = 1, over ln n


def _show_seconds(engine: Engine, replies: Sequence[Reply], rule: Rule) -> _Routing:
    """Time an exact rule and several rules together. Show the first, and how to serve it now."""
    say("timing rules: up to four times as long as the answers above")
    pair, policy = engine.pair, routed(Router({}), rule)
    batch = [request(reply.problem, pair) for reply in replies[: engine.slots]]
    single = [[each] for each in batch[:TIMED]]
    alone = seconds(engine, single, policy) / seconds(engine, single, LLM_ALONE)
    by_one = seconds(engine, [batch], policy)
    together = by_one / seconds(engine, [batch], LLM_ALONE)
    say(
        f"`{rule:.4g}`: {alone:.2f} of the LLM's seconds one by one ({len(single)} answers), "
        f'{together:.2f} in a batch of {len(batch)}; serve it now: citer serve --rule "{rule:.4g}"'
    )
    by_several = seconds(engine, [batch], *(routed(Router({}), each) for each in SEVERAL))
    growth = (by_several / by_one - 1) / log(len(SEVERAL))
    return _Routing(together, max(0.0, growth))


def vllm_line(pair: Pair, rule: Rule) -> str:
    """Return the command that serves a rule inside vLLM, with the weights as they are stored.

    vLLM needs one `vocab_size`: without it, say that there is no such command.
    """
    small, large = pair.slm.card, pair.llm.card
    if small.vocab_size != large.vocab_size:
        sizes = f"vocab_size is {small.vocab_size:,} and {large.vocab_size:,}"
        return f"no command, since {sizes}, expected equal ones"
    slm = {"method": "draft_model", "model": str(small.path), "num_speculative_tokens": DRAFTS}
    settings = {"citer": {"rule": f"{rule:.4g}"}}
    options = {"--speculative-config": slm, "--additional-config": settings}
    named = (each for name, value in options.items() for each in (name, json.dumps(value)))
    return shlex.join(["vllm", "serve", str(large.path), *named])


def _show_forecast(work: Workload, params: Params) -> None:
    """Show how long the run takes, and keep the pace for `citer run --minutes`."""
    keep(work, params)
    say(f"later stages, a rough forecast: {in_words(work.minutes(params))}")
    say(f"together {in_range(total(work, params))}; what would save most:")
    for cut in dearest(work, params):
        say(f"  {cut}")


def _workload(
    splits: Splits, slm: Asked, llm: Asked, routing: _Routing, params: Params
) -> Workload:
    source, finetuned = params.references.source, bool(params.finetune.epochs)
    by_llm = params.evaluate.against == "llm"
    written = asked_of_llm(splits, source, params.evaluate.against, finetuned=finetuned)
    return Workload(
        questions={split: len(problems) for split, problems in splits.items()},
        written={split: len(problems) for split, problems in written.items()},  # one try each
        graded=sum(problem.answer is not None for problem in splits["preference"]),
        prompt=fmean(reply.prompt_tokens for reply in llm.replies),
        answer=fmean(reply.tokens for reply in llm.replies),
        slm=slm.pace,
        llm=llm.pace,
        routed=routing.routed,
        growth=routing.growth,
        right=fmean(reply.correct is not False or by_llm for reply in llm.replies),
    )
