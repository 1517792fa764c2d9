"""Leave out questions of traffic that no stage can use: any client may ask one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from citer.config.params import Params
from citer.data.problems import Problem
from citer.data.references import JUDGED
from citer.data.traffic import TRAFFIC
from citer.errors import InputError
from citer.models.folder import PairFolder
from citer.models.room import check_characters
from citer.progress import say
from citer.stages.folders import base_pair

Splits = Mapping[str, Sequence[Problem]]


def usable(splits: Splits, params: Params) -> dict[str, Sequence[Problem]]:
    """Leave out the questions of traffic without a prompt or without room; print how many.

    A server answers longer questions than router and SLM can learn from, since a rollout may begin
    after any token of a reference. Inside vLLM, it answers other forms of prompts. Raises
    InputError if a split has no question left.
    """
    served = [p for rows in splits.values() for p in rows if p.source == TRAFFIC]
    if not served:
        return dict(splits)
    folders = base_pair(params)
    left_out = {problem for problem in served if not _fits(problem, folders, params)}
    if left_out:
        said = "questions of traffic are left out: no prompt, or no room for their answers"
        say(f"{len(left_out)} of {len(served)} {said}", style="yellow")
    kept: dict[str, Sequence[Problem]]
    kept = {split: [p for p in rows if p not in left_out] for split, rows in splits.items()}
    if empty := [split for split, rows in kept.items() if not rows]:
        expected = "expected other questions in it, too, or shorter answers (decode.max_new_tokens)"
        raise InputError(f"traffic: no question of {', '.join(empty)} can be used; {expected}")
    return kept


def _fits(problem: Problem, folders: PairFolder, params: Params) -> bool:
    most, context = params.decode.max_new_tokens, folders.context
    with suppress(InputError):
        check_characters("prompt", problem.characters, context)
        prompt_ids, reference_ids = folders.prompts.encode(problem)
        length = len(prompt_ids) + max(most, len(reference_ids))
        if problem.split in JUDGED:
            return len(prompt_ids) + most <= context
        learnt = problem.split == "sft" and params.finetune.epochs
        return length <= (min(context, params.finetune.max_length) if learnt else context - most)
    return False
