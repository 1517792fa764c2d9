"""The verdict on a rule from answers of a server; `test_vllm_api` asks a real one."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from citer.config.params import SHIPPED, SamplingParams, load_params
from citer.data.problems import write_problems
from citer.data.tasks.grading import WRONG, Grade
from citer.errors import InputError
from citer.evaluation.choice import upper_bound
from citer.evaluation.measure import ACCURACY, FIDELITY, Measure
from citer.models.pair import Pair
from citer.pairs.budget import changed
from citer.stages import paths
from citer.stages.certify import Answer, Drafts, _told, certify
from tests.completions import Completions, serving
from tests.vllm.offline import LLM, SLM, questions

PARAMS = load_params(SHIPPED)


def answers(*right: int) -> list[Answer]:
    drafts = Drafts(num_spec_steps=4, num_accepted_draft_tokens=10)
    return [Answer(Grade(True, 1.0) if each else WRONG, drafts) for each in right]


@pytest.mark.parametrize(
    ("measure", "lost", "of", "kept"), [(ACCURACY, 1, 100, True), (FIDELITY, 3, 102, False)]
)
def test_only_what_the_promise_counts_decides(
    measure: Measure, lost: int, of: int, kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The LLM is wrong on the last two questions, the rule on the first one, too."""
    routed, alone = answers(0, *[1] * 99, 0, 0), answers(*[1] * 100, 0, 0)
    assert _told("`audit 0.25` at URL", measure, PARAMS, routed, alone) is kept
    shown = capsys.readouterr().out.replace("\n", " ")
    assert f"on {lost} of" in shown
    assert f"≤ {upper_bound(lost, of, 0.05):.4f} at confidence 0.95" in shown
    assert "2.50 drafts accepted at each of 408 visits" in shown


def test_a_promise_of_sampled_answers_is_not_certified_greedily() -> None:
    sampled = PARAMS.evaluate.model_copy(update={"sampling": SamplingParams(temperature=0.7)})
    with pytest.raises(InputError, match=r"evaluate.sampling: expected null"):
        certify(PARAMS.model_copy(update={"evaluate": sampled}), "http://127.0.0.1:1", "audit 1")


class Unrouted(Completions):
    """A server that ignores the field `citer`, as vLLM does without the plugin."""

    def completion(self, content: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(content)
        return {"choices": [{"text": "", "finish_reason": "stop"}]}


def test_a_server_that_ignores_rules_certifies_none(
    tmp_path: Path, kin: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = changed(PARAMS, {"pair.slm": str(SLM), "pair.llm": str(LLM)})
    monkeypatch.chdir(tmp_path)
    paths.REFERENCES.mkdir(parents=True)
    write_problems(paths.referenced("validation"), questions(2), {})
    with serving(Unrouted(kin.local_llm, kin.tokenizer)) as server:
        with pytest.raises(InputError, match=r"expected a refusal, vLLM with the plugin of citer"):
            certify(params, server.url, "audit 1")
        assert len(server.asked) == 1
        server.failures = deque([400])
        certify(params, server.url, "audit 1")
