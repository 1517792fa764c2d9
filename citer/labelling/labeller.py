"""Label the tokens of problems, in chunks: by the truth table, or by a method.

Each chunk is a unit with its own file; a killed run keeps finished ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tasks.grading import WRONG, Grade, assess
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.executors.base import Executor
from citer.executors.tables import write_tables
from citer.labelling.contests import Branch, Contest, Decision, Method, preferences, token_cases
from citer.progress import Advance, progress
from citer.storage.schema import PREFERENCE
from citer.storage.tables import read_table

CHUNK = 64  # problems; each chunk is decoded by itself, so its labels do not depend on others
SLOW_CHUNK = 8
BRANCHING = ["problem_id", "position", "slm_token", "llm_token"]


@dataclass(frozen=True)
class Rollout:
    """Decides by the grades of finished answers: after each model's token. All need an answer."""

    engine: Engine
    policy: Policy

    def __call__(self, contests: Sequence[Contest], advance: Advance) -> list[Decision]:
        """Roll out the SLM's branch of each contest and, if it ends wrong, the LLM's branch.

        The first right branch decides. If both are wrong, the SLM's token is accepted.
        """
        by_slm = self._grades([contest.slm for contest in contests], advance)
        failed = [contest.llm for contest in contests if not by_slm[contest.slm.key].correct]
        advance(len(contests) - len(failed))  # the LLM's branches of the others
        by_llm = self._grades(failed, advance)
        return [self._decision(by_slm[slm.key], by_llm.get(llm.key)) for slm, llm in contests]

    def _decision(self, slm: Grade, llm: Grade | None) -> Decision:
        if llm is None:
            return Decision(1, "rollout", slm.correct)
        label = int(not llm.correct)
        return Decision(label, "rollout", slm.correct, llm.correct, slm.failure or llm.failure)

    def _grades(self, branches: Sequence[Branch], advance: Advance) -> dict[str, Grade]:
        """Finish the branches and return the grade of each, by its key.

        With its prefix, no branch is longer than an answer may be.
        """
        pair, most = self.engine.pair, self.engine.limits.max_new_tokens
        grades, requests = dict[str, Grade](), list[Request]()
        by_key = {branch.key: branch for branch in branches}
        for branch in branches:
            left = most - len(branch.prefix_ids)
            if left >= 0 and pair.ended(branch.prefix_ids):
                grades[branch.key] = assess(branch.problem, pair.text(branch.prefix_ids))
            elif left < 1:
                grades[branch.key] = WRONG
            else:
                requests.append(branch.request(left))
        advance(len(grades))
        for answer in self.engine.decode(requests, self.policy):
            branch = by_key[answer.key]
            text = pair.text(branch.prefix_ids + answer.token_ids)
            grades[answer.key] = WRONG if answer.truncated else assess(branch.problem, text)
            advance(1)
        return grades


@dataclass(frozen=True)
class Labeller:
    """Labels tokens; `method` decides contested ones. `problems` and `examples` are keyed by id."""

    problems: Mapping[str, Problem]
    examples: Mapping[str, Encoded]
    method: Method
    iteration: int
    is_slow: bool = False  # whether a problem may take a minute: a large pair on a CPU

    def label(self, tokens: pa.Table, advance: Advance) -> pa.Table:
        """Return the preference table of the joined `tokens`. `advance` counts branches."""
        case_N = self.cases(tokens)
        contested = np.flatnonzero(case_N == "contested")
        rows = tokens.select(BRANCHING).take(contested).to_pylist()
        decided = self.method([self._contest(**row) for row in rows], advance)
        decisions = dict(zip(contested.tolist(), decided, strict=True))
        return preferences(tokens, case_N, decisions, self.iteration)

    def cases(self, tokens: pa.Table) -> np.ndarray:
        return token_cases(self.problems, tokens)

    def _contest(self, problem_id: str, position: int, slm_token: int, llm_token: int) -> Contest:
        place = (self.problems[problem_id], self.examples[problem_id], position)
        return Contest(Branch(*place, slm_token), Branch(*place, llm_token))


def label_in_chunks(
    executor: Executor, labeller: Labeller, tokens: pa.Table, partial: Path, title: str = "label"
) -> pa.Table:
    """Return the preference table of the joined `tokens`.

    Each chunk is written to a file in `partial`. A chunk with a file is not labelled again.
    """
    chunks = _chunks(tokens, SLOW_CHUNK if labeller.is_slow else CHUNK, partial)
    missing = {path: chunk for path, chunk in chunks.items() if not path.exists()}
    contests = sum(int((labeller.cases(chunk) == "contested").sum()) for chunk in missing.values())
    with progress(f"{title} {labeller.iteration}", 2 * contests, "branches") as advance:
        write_tables(executor, labeller.label, missing, PREFERENCE, {}, advance)
    return pa.concat_tables(read_table(path, PREFERENCE) for path in chunks)


def _chunks(tokens: pa.Table, size: int, partial: Path) -> dict[Path, pa.Table]:
    """Split the tokens into slices of `size` problems; the rows of a problem are adjacent.

    A file's name has the number of chunks: a run that resumes on another device may need another.
    """
    problem_N = tokens["problem_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(problem_N, prepend=-1))[::size].tolist()
    places = zip(starts, [*starts[1:], len(tokens)], strict=True)
    return {
        partial / f"{n:06}-of-{len(starts)}.parquet": tokens.slice(start, end - start)
        for n, (start, end) in enumerate(places, 1)
    }
