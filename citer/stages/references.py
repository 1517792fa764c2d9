"""Give every question the reference and the answer that later stages use."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from citer.config.params import Params
from citer.data.problems import Problem, read_problems, seeded, write_problems
from citer.data.references import JUDGED, TRAINING, asked_of_llm, judged, learned
from citer.data.splits import check_held_out
from citer.data.tasks import task_label
from citer.data.tasks.grading import failures
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.errors import InputError
from citer.evaluation.sweep import Line, Result, sweep
from citer.models.device import announce
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.pair import Pair
from citer.models.room import check_room
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.progress import say
from citer.stages import paths
from citer.stages.folders import base_pair
from citer.stages.traffic import Splits, usable
from citer.storage.code import code_digest
from citer.storage.schema import SPLITS
from citer.storage.tables import PARTIAL, digest, partial_dir, remove, replacing, table_metadata

ALONE = Line("LLM", LLM_ALONE.scorer, [LLM_ALONE.rule])


class Written(NamedTuple):
    """What the LLM wrote for a question. `correct` is None if it was not graded."""

    text: str
    correct: bool | None
    failure: str | None
    cut_off: bool

    @classmethod
    def of(cls, result: Result, pair: Pair) -> "Written":
        graded = result.problem.answer is not None
        correct, failure = (result.correct, result.failure) if graded else (None, None)
        return cls(pair.text(result.token_ids), correct, failure, result.truncated)


def run(params: Params) -> None:
    """Let the LLM answer the questions whose reference or answer it is to give; keep the others.

    A killed run resumes at its unfinished part of the questions. Raises InputError if a row lacks
    a reference or an answer that the LLM is not to give, if a question has no room for its answer,
    or if a split has no question left.
    """
    whole = usable({split: read_problems(paths.problems(split)) for split in SPLITS}, params)
    source, finetuned = params.references.source, bool(params.finetune.epochs)
    by_llm = asked_of_llm(whole, source, params.evaluate.against, finetuned=finetuned)
    left_out = set[Problem]()
    for split, own in whole.items():
        ranked = sorted(own, key=lambda problem: seeded(problem.problem_id, params.seed))
        left_out.update(ranked[params.references.kept(split, len(own)) :])
    splits, questions = (
        {split: [p for p in rows if p not in left_out] for split, rows in all_of.items()}
        for all_of in (whole, by_llm)
    )
    check_held_out(splits["preference"])
    for split in SPLITS if finetuned else SPLITS[1:]:
        _check_given(split, [] if questions[split] else splits[split])
    written = _write(questions, params) if any(questions.values()) else {}
    rows = {split: [*_rows(split, splits[split], written, params)] for split in SPLITS}
    _report(splits, rows, written)
    if empty := [split for split in SPLITS if questions[split] and not rows[split]]:
        reason = "the LLM finished no answer that can be a reference"
        raise InputError(f"references: nothing left of {', '.join(empty)}: {reason}")
    check_held_out(rows["preference"])
    with replacing(paths.REFERENCES) as aside:
        for split in SPLITS:
            stored = table_metadata(paths.problems(split))
            del stored["schema_version"]  # that of the new table is written
            write_problems(aside / paths.referenced(split).name, rows[split], stored)
    remove(PARTIAL / "references")


def _check_given(split: str, problems: Sequence[Problem]) -> None:
    """Raise InputError for the first row that lacks what it must have without the LLM."""
    needed = "reference" if split in TRAINING else "answer"
    if bare := next((p for p in problems if getattr(p, needed) is None), None):
        setting = "references.source" if split in TRAINING else "evaluate.against"
        raise InputError(
            f"{paths.problems(split)}: problem {bare.problem_id}: no {needed}; expected one, or "
            f"{setting}: llm or auto in params.yaml"
        )


def _rows(
    split: str, problems: Sequence[Problem], written: Mapping[str, Written], params: Params
) -> Iterator[Problem]:
    for problem in problems:
        answer = written.get(problem.problem_id)
        if answer is None:
            yield problem
        elif split in JUDGED:
            yield from judged(problem, None if answer.cut_off else answer.text)
        else:
            good = not answer.cut_off and answer.correct is not False
            yield from learned(problem, answer.text if good else None, params.references.source)


def _write(questions: Splits, params: Params) -> dict[str, Written]:
    announce("references", params.pair)
    folders = base_pair(params)
    for problems in questions.values():
        check_room(paths.named(problems, paths.problems), folders, params.decode.max_new_tokens)
    partial = _partial(folders, params)
    pair, executor = open_pair(folders, params.pair, params.workers)
    engine = Engine(pair, params.decode.slots, params.decode.max_new_tokens)
    evaluated = Sampler(params.evaluate.sampling, params.seed)
    written: dict[str, Written] = {}
    for split, own in questions.items():
        if own:
            sampler = evaluated if split in JUDGED else ALL_GREEDY
            [[alone]] = sweep(executor, engine, own, [ALONE], partial / split, sampler)
            written |= {each.problem.problem_id: Written.of(each, pair) for each in alone.results}
    return written


def _partial(folders: PairFolder, params: Params) -> Path:
    """Return the folder for unfinished work, named by all that the answers depend on."""
    settings = (
        str(folders.identity(params.pair.dtype)),
        params.model_dump_json(include={"pair", "references", "decode", "seed"}),
        params.evaluate.model_dump_json(include={"sampling", "against"}),
        params.finetune.model_dump_json(include={"epochs", "max_length"}),
        code_digest("references"),
    )
    return partial_dir("references", digest(paths.PROBLEMS, *settings))


def _report(splits: Splits, rows: Splits, written: Mapping[str, Written]) -> None:
    table = Table("split", "task", title="References")
    for column in ("given", "by the LLM", "right of graded", "left out", "cut off"):
        table.add_column(column, justify="right")
    for split in SPLITS:
        for task in dict.fromkeys(problem.task for problem in splits[split]):
            asked_of = [p for p in splits[split] if p.task == task]
            kept = [p for p in rows[split] if p.task == task]
            table.add_row(split, task_label(task), *_numbers(asked_of, kept, written))
    say(table)
    named = [p for split in SPLITS for p in splits[split] if p.problem_id in written]
    failed = failures((p.task, p.problem_id, written[p.problem_id].failure) for p in named)
    for each in failed:
        say(str(each))


def _numbers(
    problems: Sequence[Problem], kept: Sequence[Problem], written: Mapping[str, Written]
) -> Iterator[str]:
    by = Counter(problem.written_by for problem in kept)
    answers = [written[p.problem_id] for p in problems if p.problem_id in written]
    graded = [answer.correct for answer in answers if answer.correct is not None]
    left = {problem.problem_id for problem in kept}
    yield str(by[None])
    yield str(by["llm"])
    yield f"{sum(graded)} of {len(graded)}" if graded else "-"
    yield str(sum(problem.problem_id not in left for problem in problems))
    yield str(sum(answer.cut_off for answer in answers))
