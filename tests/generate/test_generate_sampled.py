"""`citer generate` at a temperature."""

import json
from pathlib import Path

import pytest

from citer.config.params import Params, SamplingParams
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from citer.serving.generate import generate
from tests.generate.project import MATH, answers
from tests.generate.test_generate_resumed import killed_at

WARM = Sampler(SamplingParams(temperature=0.9, top_p=0.95), 3)
LLM, EXACT = Rule("score", 1.0), Rule("risk", 0.5, 1.0)


def texts(
    params: Params, bundle: Path, rows: list[dict], rule: Rule, sampler: Sampler
) -> dict[str, str]:
    """Return the completion of each question."""
    source, output = Path("q.jsonl"), Path("out.jsonl")
    source.write_text("\n".join(map(json.dumps, rows)))
    evaluate = params.evaluate.model_copy(update={"sampling": sampler.params})
    sampled = params.model_copy(update={"evaluate": evaluate, "seed": sampler.seed})
    generate(sampled, bundle, source, output, rule)
    return {line["question"]: line["completion"] for line in answers(output)}


def test_a_sampled_answer_depends_on_the_seed_and_its_question_only(
    params: Params, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = texts(params, bundle, MATH, EXACT, WARM)
    printed = " ".join(capsys.readouterr().out.split())
    assert "`risk 0.5 audit 1`, temperature 0.9, top_p 0.95, seed 3, " in printed
    assert (
        texts(params, bundle, [{"problem": "Why?"}, *MATH[::-1]], EXACT, WARM).items()
        > first.items()
    )
    assert texts(params, bundle, MATH, EXACT, WARM._replace(seed=4)) != first
    assert texts(params, bundle, MATH, EXACT, ALL_GREEDY) != first


def test_an_exact_rule_gives_the_llms_own_samples(params: Params, bundle: Path) -> None:
    assert texts(params, bundle, MATH, EXACT, WARM) == texts(params, bundle, MATH, LLM, WARM)


def test_a_killed_call_resumes_with_equal_settings_only(
    params: Params, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = texts(params, bundle, MATH, EXACT, WARM)
    for sampler, kept in ((WARM._replace(seed=4), 0), (WARM, 2)):
        with monkeypatch.context() as patch:
            patch.setattr("citer.serving.generate.line", killed_at(3))
            with pytest.raises(KeyboardInterrupt):
                texts(params, bundle, MATH, EXACT, WARM)
        with monkeypatch.context() as patch:
            patch.setattr("citer.serving.generate.line", killed_at(len(MATH) - kept + 1))
            resumed = texts(params, bundle, MATH, EXACT, sampler)
        assert (resumed == undisturbed) == (kept > 0)
        assert not list(Path().glob(".*.partial"))
