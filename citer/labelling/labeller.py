"""Label the tokens of problems: by the truth table, by an outcome, or by earlier audits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.labelling.audited import audited_labels
from citer.labelling.contests import Branch, Contest, Outcome
from citer.labelling.preference import Decision, cases, preferences
from citer.progress import Advance

BRANCHING = ["problem_id", "position", "slm_token", "llm_token"]


@dataclass(frozen=True)
class Labeller:
    """Labels tokens; `outcome` decides contested ones.

    `problems` and `examples` are keyed by id.
    """

    problems: Mapping[str, Problem]
    examples: Mapping[str, Encoded]
    outcome: Outcome
    iteration: int

    def label(self, tokens: pa.Table, advance: Advance) -> pa.Table:
        """Return the preference table of the joined `tokens`.

        `advance` counts branches, two per contested position.
        """
        case_N = self.cases(tokens)
        contested = np.flatnonzero(case_N == "contested")
        rows = tokens.select(BRANCHING).take(contested).to_pylist()
        decided = self.outcome([self._contest(**row) for row in rows], advance)
        decisions = dict(zip(contested.tolist(), decided, strict=True))
        decisions.update(self._audited(tokens))
        return preferences(tokens, case_N, decisions, self.iteration)

    def cases(self, tokens: pa.Table) -> np.ndarray:
        return token_cases(self.problems, tokens)

    def _audited(self, tokens: pa.Table) -> Iterator[tuple[int, Decision]]:
        """Yield the rows of audited answers that have a label, with the label."""
        problem_N, slm_N = (tokens[name].to_numpy() for name in ("problem_id", "slm_token"))
        for key in tokens["problem_id"].unique().to_pylist():
            if self.problems[key].audits is not None:
                row_M = np.flatnonzero(problem_N == key)
                reference_ids = self.examples[key].reference_ids
                labels = audited_labels(self.problems[key], reference_ids, slm_N[row_M])
                yield from ((int(row_M[n]), Decision(y, "audit")) for n, y in labels.items())

    def _contest(self, problem_id: str, position: int, slm_token: int, llm_token: int) -> Contest:
        place = (self.problems[problem_id], self.examples[problem_id], position)
        return Contest(Branch(*place, slm_token), Branch(*place, llm_token))


def token_cases(problems: Mapping[str, Problem], tokens: pa.Table) -> np.ndarray:
    """Return the case of each row of the joined token table."""
    columns = ("gt_token", "slm_token", "llm_token")
    gt_N, slm_N, llm_N = (tokens[name].to_numpy() for name in columns)
    by_llm = [key for key, problem in problems.items() if problem.written_by == "llm"]
    case_N = cases(gt_N, slm_N, llm_N, _is_in(tokens, by_llm))
    with_audits = [key for key, problem in problems.items() if problem.audits is not None]
    return np.where(_is_in(tokens, with_audits), "audited", case_N)


def _is_in(tokens: pa.Table, problem_ids: list[str]) -> np.ndarray:
    keys = pa.array(problem_ids, pa.string())
    return pc.is_in(tokens["problem_id"], keys).to_numpy()
