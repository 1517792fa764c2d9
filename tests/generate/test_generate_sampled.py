"""`citer generate` at a temperature."""

from dataclasses import replace

import pytest

from citer.config.params import SamplingParams
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from tests.generate.project import MATH, Project, killed_at

WARM = Sampler(SamplingParams(temperature=0.9, top_p=0.95), 3)
LLM, EXACT = Rule("score", 1.0), Rule("risk", 0.5, 1.0)


def texts(project: Project, rule: Rule, sampler: Sampler) -> dict[str, str]:
    """Return the completion of each question."""
    evaluate = project.params.evaluate.model_copy(update={"sampling": sampler.params})
    changes = {"evaluate": evaluate, "seed": sampler.seed}
    sampled = replace(project, params=project.params.model_copy(update=changes))
    return {line["question"]: line["completion"] for line in sampled.generate(rule)}


def test_a_sampled_answer_depends_on_the_seed_and_its_question_only(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    first = texts(project, EXACT, WARM)
    printed = " ".join(capsys.readouterr().out.split())
    assert "`risk 0.5 audit 1`, temperature 0.9, top_p 0.95, seed 3, " in printed
    assert texts(project, EXACT, WARM._replace(seed=4)) != first
    assert texts(project, EXACT, ALL_GREEDY) != first
    project.write([{"problem": "Why?"}, *MATH[::-1]])
    assert texts(project, EXACT, WARM).items() > first.items()


def test_an_exact_rule_gives_the_llms_own_samples(project: Project) -> None:
    assert texts(project, EXACT, WARM) == texts(project, LLM, WARM)


def test_a_killed_call_resumes_with_equal_settings_only(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = texts(project, EXACT, WARM)
    for sampler, kept in ((WARM._replace(seed=4), 0), (WARM, 2)):
        with monkeypatch.context() as patch:
            patch.setattr("citer.serving.generate.line", killed_at(3))
            with pytest.raises(KeyboardInterrupt):
                texts(project, EXACT, WARM)
            patch.setattr("citer.serving.generate.line", killed_at(len(MATH) - kept + 1))
            resumed = texts(project, EXACT, sampler)
        assert (resumed == undisturbed) == (kept > 0)
        assert not list(project.folder.glob(".*.partial"))
