"""The fall against plain forwards of transformers in float64, without a cache."""

from dataclasses import replace
from math import inf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from citer.data.problems import Problem
from citer.decoding.served import verifier_of
from citer.labelling.contests import Branch, Contest
from citer.labelling.labeller import Labeller
from citer.labelling.suffix import Suffix
from tests.labelling.conftest import Taught

SLOTS = 3


def ignore(_: float) -> None:
    pass


def by_llm(taught: Taught) -> dict[str, Problem]:
    return {key: replace(p, written_by="llm") for key, p in taught.problems.items()}


def labels(taught: Taught, problems: dict[str, Problem], outcome: Suffix) -> pa.Table:
    return Labeller(problems, taught.examples, outcome, 1).label(taught.tokens, ignore)


def log_odds(
    taught: Taught, prompt_ids: list[int], ids: list[int], start: int, ending: int = 4
) -> float:
    """Sum log(p(token) / p(choice)) over ids[start] and the last `ending` ids after it.

    Computed from one forward over the whole text.
    """
    whole = torch.tensor([[*prompt_ids, *ids]])
    with torch.inference_mode():
        logprob_NV = taught.pair.llm.network(whole).logits[0].log_softmax(-1)
    first = len(prompt_ids) + start
    contested, *after = range(first - 1, whole.shape[1] - 1)
    rows = [contested, *after[max(0, len(after) - ending) :]]
    return sum((logprob_NV[n, whole[0, n + 1]] - logprob_NV[n].max()).item() for n in rows)


def expected_fall(
    taught: Taught, key: str, position: int, by_llm: bool, margin: float
) -> tuple[float, bool]:
    """Return the fall, and whether it takes the ending to decide."""
    prompt_ids, reference_ids = taught.examples[key]
    row = taught.tokens.filter(
        pc.and_(
            pc.equal(taught.tokens["problem_id"], key),
            pc.equal(taught.tokens["position"], position),
        )
    ).to_pylist()[0]

    def with_token(token: int, ending: int) -> float:
        rest = [] if token in taught.pair.eos_ids else reference_ids[position + 1 :]
        text = [*reference_ids[:position], token, *rest]
        return log_odds(taught, prompt_ids, text, position, ending)

    own = reference_ids[position] if by_llm else row["llm_token"]
    first, whole = (with_token(own, n) - with_token(row["slm_token"], n) for n in (0, 4))
    unclear = 0.5 < first <= margin
    return max(first, whole) if unclear else first, unclear


@pytest.mark.parametrize("written_by", [None, "llm"])
def test_falls_equal_those_of_plain_forwards(taught: Taught, written_by: str | None) -> None:
    problems = by_llm(taught) if written_by else taught.problems
    table = labels(taught, problems, Suffix(taught.pair, SLOTS, margin=6.0))
    rows = table.filter(pc.equal(table["case"], "contested")).to_pylist()
    assert {row["problem_id"].split("-")[0] for row in rows} == {"math", "mc"}
    seen = set()
    for row in rows[::4]:
        place = row["problem_id"], row["position"]
        fall, unclear = expected_fall(taught, *place, bool(written_by), margin=6.0)
        assert row["fall"] == pytest.approx(fall, rel=1e-6, abs=1e-9)
        seen.add(unclear)
    assert seen == {False, True}
    assert [row["label"] for row in rows] == [int(row["fall"] <= 6.0) for row in rows]
    assert {row["label"] for row in rows} == {0, 1}
    assert {row["origin"] for row in rows} == {"suffix"}


def test_labels_do_not_depend_on_slots_or_on_how_many_tokens_are_judged_at_once(
    taught: Taught, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, many = (labels(taught, taught.problems, Suffix(taught.pair, slots)) for slots in (1, 64))
    monkeypatch.setattr("citer.labelling.suffix.TOKENS", 40)
    few = labels(taught, taught.problems, Suffix(taught.pair, 64))
    for other in (one, few):
        assert other.drop_columns(["fall"]).equals(many.drop_columns(["fall"]))
        falls = (table["fall"].drop_null().to_numpy() for table in (other, many))
        np.testing.assert_allclose(*falls, rtol=1e-6)


def test_a_reference_is_read_once_and_endings_only_where_they_decide(taught: Taught) -> None:
    """The work of the LLM: the shared prefix is never read again."""
    key = "math-0"
    prompt_ids, reference_ids = example = taught.examples[key]
    problem = by_llm(taught)[key]
    verifier = verifier_of(taught.pair.llm, taught.pair.vocabulary)
    pair = replace(taught.pair, llm=verifier)  # type: ignore[arg-type]
    positions = [2, 5, 9]
    contests = [
        Contest(*(Branch(problem, example, n, token) for token in (65, reference_ids[n])))
        for n in positions
    ]
    counted: list[float] = []
    Suffix(pair, 1, margin=0.0).falls(contests, counted.append)
    length = len(reference_ids)
    # The last token of each text is judged, but not read; the one before the contested is read.
    once = len(prompt_ids) + length - 1
    assert verifier.work.positions == once + len(positions)
    Suffix(pair, 1, margin=inf).falls(contests, counted.append)
    endings = once + sum(length - n for n in positions)
    assert verifier.work.positions == 2 * (once + len(positions)) + endings
    assert sum(counted) == 2 * 2 * len(contests)


def test_nothing_is_read_after_a_token_that_ends_the_answer(taught: Taught) -> None:
    example, eos = taught.examples["math-0"], taught.pair.eos_ids[0]
    prompt_ids, reference_ids = example
    problem = taught.problems["math-0"]
    own_token = taught.tokens.filter(pc.equal(taught.tokens["position"], 4))["llm_token"][0].as_py()
    contest = Contest(Branch(problem, example, 4, eos), Branch(problem, example, 4, own_token))
    [fall] = Suffix(taught.pair, 1, margin=inf).falls([contest], ignore)
    text = [*reference_ids[:4], own_token, *reference_ids[5:]]
    first, whole = (log_odds(taught, prompt_ids, text, 4, ending) for ending in (0, 4))
    ended = log_odds(taught, prompt_ids, [*reference_ids[:4], eos], 4)
    assert fall == pytest.approx(max(first, whole) - ended)


def test_no_contest_takes_no_work(taught: Taught) -> None:
    assert Suffix(taught.pair, 2)([], ignore) == []


def test_the_falls_of_a_calibration_give_the_labels_of_every_margin(taught: Taught) -> None:
    """A calibration reads all endings that may count, labelling only those up to the margin."""
    falls = labels(taught, taught.problems, Suffix(taught.pair, SLOTS, margin=inf))["fall"]
    for margin in (0.7, 2.0, 6.0):
        table = labels(taught, taught.problems, Suffix(taught.pair, SLOTS, margin=margin))
        contested = pc.is_valid(table["fall"])
        expected = pc.cast(pc.less_equal(falls, margin), "int8").filter(contested)
        assert pc.cast(table["label"], "int8").filter(contested).equals(expected)
