"""Routing in a real vLLM, offline: against vLLM alone, and against the SLM alone."""

from collections import Counter
from pathlib import Path

import pytest

from citer.config.params import PairParams
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from tests.vllm.api import write_router
from tests.vllm.offline import CAP, ENGINE, LLM, SLM, Done, Job, questions, run, start

pytestmark = pytest.mark.vllm

EXACT = "risk 0.5 audit 1"
SOME = list(range(24))
SAMPLED = {"temperature": 2.0, "max_tokens": 3, "top_p": 0.95, "n": 100}
JOBS = {
    "greedy": Job(list(range(240)), rules=[EXACT]),
    "mixed": Job(SOME, rules=["score 1", EXACT, "score 0", "every 4 audit 1"]),
    "kept": Job(SOME, rules=["score 0"]),
    "short": Job(SOME, {"max_tokens": 5}, [EXACT]),
    "penalty": Job(SOME, {"repetition_penalty": 1.3, "presence_penalty": 0.5}, [EXACT]),
    "least": Job(SOME, {"min_tokens": 80, "bad_words": ["."]}, ["score 0"]),
    "endless": Job(SOME, {"ignore_eos": True, "max_tokens": 300}, [EXACT]),
    "logprobs": Job(SOME, {"logprobs": 0}, [EXACT]),
    "schema": Job(SOME, {"structured_outputs": {"regex": "[0-9 ]{4,12}"}}, ["score 0"]),
    "sampled": Job([0] * 20, SAMPLED, ["every 2 audit 1"]),
    "default": Job(SOME),
    "invalid": Job(SOME, rules=["risk 2"]),
}


def settings(folder: Path, llm: str | None = None) -> dict[str, str]:
    """Write a router (see `write_router`). Return the settings for it."""
    router = write_router(folder, llm)
    return {"router": str(router), "slm": str(SLM), "rule": EXACT}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    jobs = {name: job._replace(rules=()) for name, job in JOBS.items()}
    return run(tmp_path_factory.mktemp("alone"), jobs, None)


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    folder = tmp_path_factory.mktemp("routed")
    return run(folder, JOBS, settings(folder / "router"))


@pytest.mark.parametrize("job", ["greedy", "short", "penalty", "endless", "logprobs", "default"])
def test_exact_rules_write_what_vllm_writes_alone(
    alone: dict[str, Done], routed: dict[str, Done], job: str
) -> None:
    assert routed[job].answers == alone[job].answers
    assert routed[job].counts["accepted"] > len(JOBS[job].questions)


def test_an_exact_rule_needs_fewer_forwards_of_the_llm(routed: dict[str, Done]) -> None:
    counts = routed["greedy"].counts
    tokens = sum(map(len, routed["greedy"].answers))
    assert counts["llm_forwards"] < tokens / 8 / 1.5
    assert counts["rejected"] > 0


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
    assert all(same[0::4])
    assert all(same[1::4])
    assert all(same[3::4])
    assert not any(same[2::4])
    assert routed["mixed"].answers[2::4] == routed["kept"].answers[2::4]


def test_at_beta_0_the_slms_tokens_stand(routed: dict[str, Done]) -> None:
    """vLLM writes the first token, and one after each CAP drafts."""
    done = routed["kept"]
    assert done.counts["accepted"] == done.counts["drafted"] > 0
    folders = PairFolder(SLM, LLM)
    params = PairParams(slm=str(SLM), llm=str(LLM), device="cpu", dtype="float32")
    engine = Engine(load_pair(folders, params), 8, CAP)
    requests = [
        Request(str(n), tuple(folders.prompts.prompt_ids(problem)), tuple(ids[:1]))
        for n, (problem, ids) in enumerate(zip(questions(len(SOME)), done.answers, strict=True))
    ]
    for answer in engine.decode(requests, SLM_ALONE):
        ids = done.answers[int(answer.key)]
        assert ids[1 : 1 + CAP] == list(answer.token_ids)


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


def test_sampling_at_beta_1_has_the_llms_distribution(
    alone: dict[str, Done], routed: dict[str, Done]
) -> None:
    from scipy.stats import chi2_contingency

    for end in (2, 3):  # the first token is always vLLM's own
        counts = [
            Counter(tuple(ids[:end]) for ids in done["sampled"].answers) for done in (alone, routed)
        ]
        common = [key for key, n in (counts[0] + counts[1]).items() if n >= 20]
        assert len(common) > 5
        table = [
            [*(own[key] for key in common), sum(own.values()) - sum(own[key] for key in common)]
            for own in counts
        ]
        assert chi2_contingency(table).pvalue > 1e-3
    assert routed["sampled"].counts["rejected"] > 100 < routed["sampled"].counts["accepted"]


def test_a_rule_that_is_not_valid_leaves_the_request_to_the_llm(
    alone: dict[str, Done], routed: dict[str, Done]
) -> None:
    assert routed["invalid"].answers == alone["invalid"].answers
    assert routed["invalid"].counts["drafted"] == 0


def test_preempted_requests_are_answered_alike(alone: dict[str, Done], tmp_path: Path) -> None:
    jobs = {name: JOBS[name] for name in ("endless",)}
    done = run(tmp_path, jobs, settings(tmp_path / "router"), num_gpu_blocks_override=24)["endless"]
    assert done.preemptions > 0
    assert done.answers == alone["endless"].answers


def test_a_router_of_another_llm_is_refused(tmp_path: Path) -> None:
    another = settings(tmp_path / "router", llm="of another model")
    ended = start({"jobs": {}, "settings": another, "engine": ENGINE, "out": str(tmp_path / "x")})
    assert ended.returncode != 0
    assert "made for the LLM" in ended.stderr
    assert "of another model" in ended.stderr
    assert LLM.name in ended.stderr
