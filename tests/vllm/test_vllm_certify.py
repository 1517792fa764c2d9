"""The verdict on a rule from answers of a server; `test_vllm_api` asks a real one."""

import pytest

from citer.config.params import SHIPPED, SamplingParams, load_params
from citer.data.tasks.grading import WRONG, Grade
from citer.errors import InputError
from citer.evaluation.choice import upper_bound
from citer.evaluation.measure import ACCURACY, FIDELITY, Measure
from citer.stages.certify import Answer, Drafts, _told, certify

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
