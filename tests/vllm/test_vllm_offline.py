"""Routing in a real vLLM, offline: against vLLM alone, for its draft model and its `ngram`."""

from pathlib import Path
from typing import Any

import pytest

from citer.models.folder import PairFolder
from tests.vllm.api import write_router
from tests.vllm.eagle import train
from tests.vllm.offline import CAP, LLM, SLM, Done, Job, draft_model, run, wide_slm

pytestmark = pytest.mark.vllm

EXACT = "risk 0.5 audit 1"
SOME = list(range(8))
JOBS = {
    "greedy": Job(list(range(16)), rules=[EXACT]),
    "mixed": Job(SOME, rules=["score 1", EXACT, "score 0", "every 4 audit 1 by entropy"]),
    "kept": Job(SOME, rules=["score 0"]),
    "few": Job(SOME, rules=["every 4 audit 1"]),
    "short": Job(SOME, {"max_tokens": 5}, [EXACT]),
    "penalty": Job(SOME, {"repetition_penalty": 1.3, "presence_penalty": 0.5}, [EXACT]),
    "least": Job(SOME, {"min_tokens": 80, "bad_words": ["."]}, ["score 0"]),
    "endless": Job(SOME, {"ignore_eos": True, "max_tokens": 120}, [EXACT]),
    "logprobs": Job(SOME, {"logprobs": 0}, [EXACT]),
    "schema": Job(SOME, {"structured_outputs": {"regex": "[0-9 ]{4,12}"}}, ["score 0"]),
    "default": Job(SOME),
    "invalid": Job(SOME, rules=["risk 2"]),
    "unrouted": Job(SOME, rules=["score 1"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="module")
def slm(folder: Path) -> Path:
    return wide_slm(folder)


@pytest.fixture(scope="module")
def settings(folder: Path, slm: Path) -> dict[str, str]:
    return {"router": str(write_router(folder / "router", slm)), "rule": EXACT}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    jobs = {name: job._replace(rules=()) for name, job in JOBS.items()}
    return run(tmp_path_factory.mktemp("alone"), jobs)


@pytest.fixture(scope="module")
def routed(folder: Path, slm: Path, settings: dict[str, str]) -> dict[str, Done]:
    return run(folder, JOBS, settings, draft_model(slm))


@pytest.mark.parametrize(
    "job", ["greedy", "few", "short", "penalty", "endless", "logprobs", "default"]
)
def test_exact_rules_write_what_vllm_writes_alone(
    alone: dict[str, Done], routed: dict[str, Done], job: str
) -> None:
    assert routed[job].answers == alone[job].answers
    assert routed[job].counts["accepted"] > len(JOBS[job].questions)


def test_a_rule_ends_the_drafts_of_its_requests(routed: dict[str, Done]) -> None:
    """Drafts that the LLM judged, and steps of the SLM, for each of its visits."""
    fixed, risky = routed["few"].counts, routed["greedy"].counts
    assert fixed["slm_steps"] <= 4 * (fixed["visits"] + 2)
    assert fixed["drafted"] <= 4 * len(SOME) * fixed["visits"]
    assert risky["slm_steps"] < CAP * risky["visits"]


def test_log_probabilities_are_the_llms_own(
    alone: dict[str, Done], routed: dict[str, Done]
) -> None:
    for own, theirs in zip(routed["logprobs"].logprobs, alone["logprobs"].logprobs, strict=True):
        assert own == pytest.approx(theirs, abs=1e-3)


def test_each_request_of_a_batch_follows_its_own_rule(
    alone: dict[str, Done], routed: dict[str, Done]
) -> None:
    pairs = zip(routed["mixed"].answers, alone["mixed"].answers, strict=True)
    same = [own == theirs for own, theirs in pairs]
    assert all(same[0::4] + same[1::4] + same[3::4])
    assert not any(same[2::4])
    assert routed["mixed"].answers[2::4] == routed["kept"].answers[2::4]


def test_at_beta_0_all_drafts_stand(routed: dict[str, Done]) -> None:
    counts = routed["kept"].counts
    assert counts["accepted"] == counts["drafted"] > 0
    assert counts["audited"] == 0


def test_requests_that_are_not_routed_have_no_drafts(
    alone: dict[str, Done], routed: dict[str, Done]
) -> None:
    for job in ("unrouted", "invalid"):
        assert routed[job].answers == alone[job].answers
        assert not any(routed[job].counts.values())


def test_drafts_obey_what_a_request_forbids(routed: dict[str, Done]) -> None:
    folders = PairFolder(SLM, LLM)
    [banned] = folders.slm.tokenizer.encode(".", add_special_tokens=False)
    assert any(banned in ids for ids in routed["kept"].answers)
    for ids in routed["least"].answers:
        assert folders.slm.eos_ids[0] not in ids[:80]
        assert banned not in ids
    for ids in routed["schema"].answers:
        text = folders.slm.tokenizer.decode(ids, skip_special_tokens=True)
        assert set(text) <= set("0123456789 ")


def test_what_the_slm_has_not_read_is_not_in_its_prefix_cache(
    routed: dict[str, Done], tmp_path: Path, slm: Path, settings: dict[str, str]
) -> None:
    jobs = {name: JOBS[name] for name in ("unrouted", "few")}
    after = run(tmp_path, jobs, settings, draft_model(slm), enable_prefix_caching=True)
    assert after["few"].answers == routed["few"].answers
    assert after["few"].counts["accepted"] == routed["few"].counts["accepted"]


def test_preempted_requests_are_answered_alike(
    alone: dict[str, Done], tmp_path: Path, slm: Path, settings: dict[str, str]
) -> None:
    jobs = {"endless": JOBS["endless"]}
    scarce = run(tmp_path, jobs, settings, draft_model(slm), num_gpu_blocks_override=24)["endless"]
    assert scarce.preemptions > 0
    assert scarce.answers == alone["endless"].answers


def test_asynchronous_scheduling_changes_no_answer(
    alone: dict[str, Done], tmp_path: Path, slm: Path
) -> None:
    """Without a router: a certainty scores."""
    jobs = {name: JOBS[name] for name in ("few", "unrouted", "default")}
    certain = {"rule": "risk 0.7 audit 1"}
    done = run(tmp_path, jobs, certain, draft_model(slm), async_scheduling=True)
    assert [done[name].answers for name in jobs] == [alone[name].answers for name in jobs]
    assert done["default"].counts["slm_steps"] < CAP * done["default"].counts["visits"]
    assert not done["unrouted"].counts["drafted"]


def speculation(method: str, folder: Path) -> dict[str, Any]:
    own = {"method": method, "num_speculative_tokens": 4}
    if method == "ngram":
        return own | {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
    return own | {"model": str(train(folder / "eagle"))}


@pytest.mark.parametrize("method", ["ngram", "eagle"])
def test_any_speculator_of_vllm_can_be_relaxed(
    alone: dict[str, Done], tmp_path: Path, method: str
) -> None:
    jobs = {
        "exact": Job(SOME, rules=["audit 1"]),
        "relaxed": Job(SOME, rules=["audit 0.05"]),
        "alone": Job(SOME, rules=["score 1"]),
    }
    done = run(tmp_path, jobs, {"rule": "audit 0.25"}, speculation(method, tmp_path))
    assert done["exact"].answers == done["alone"].answers == alone["few"].answers
    assert done["relaxed"].answers != alone["few"].answers
    exact, relaxed, unrouted = (done[name].counts for name in jobs)
    assert relaxed["accepted"] / relaxed["visits"] > exact["accepted"] / exact["visits"] > 0
    assert not unrouted["drafted"]
