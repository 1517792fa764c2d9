"""The shortest proof in a real vLLM: `.ci/run` runs it wherever vLLM can be installed."""

from pathlib import Path

import pytest

from tests.vllm.offline import CAP, Job, draft_model, run, wide_slm

pytestmark = pytest.mark.vllm


def test_two_folders_are_served_exactly_in_fewer_forwards(tmp_path: Path) -> None:
    jobs = {"some": Job([0, 1, 2, 3])}
    alone = run(tmp_path, jobs)["some"]
    own = {"rule": "risk 0.7 audit 1"}
    routed = run(tmp_path, jobs, own, draft_model(wide_slm(tmp_path)))["some"]
    assert routed.answers == alone.answers
    assert 4 * routed.counts["visits"] < max(map(len, alone.answers))
    assert routed.counts["slm_steps"] < CAP * routed.counts["visits"]
