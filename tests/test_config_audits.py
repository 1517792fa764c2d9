"""Settings of acceptance rules: what `evaluate.audits` and `label.judge` allow together."""

from pathlib import Path

import pytest

from citer.config.params import Params, load_params
from citer.errors import InputError

SHIPPED = Path(__file__).parents[1] / "params.yaml"


def loaded(folder: Path, *changes: tuple[str, str]) -> Params:
    """Load the shipped settings, each `old` text replaced by `new` where it last occurs."""
    text = SHIPPED.read_text()
    for old, new in changes:
        assert old in text
        text = new.join(text.rsplit(old, 1))
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml")


def test_audits_are_numbers_or_texts(tmp_path: Path) -> None:
    texts = (
        ("audits: [0.25", "audits: [kl 2, top 3, judge 0.9, 0.25"),
        ("judge: false", "judge: true"),
    )
    params = loaded(tmp_path, *texts)
    assert params.evaluate.audits == ("kl 2", "top 3", "judge 0.9", 0.25, 1.0)


@pytest.mark.parametrize("audit", ["1.5", "0", "judge 2", "judge 0", "kl .inf", "top 2.0", "true"])
def test_an_entry_that_is_no_acceptance_rule_is_refused_by_itself(
    tmp_path: Path, audit: str
) -> None:
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, ("audits: [0.25", f"audits: [{audit}"))
    assert "expected β above 0 and at most 1, or a text such as" in str(refused.value)
    assert "risk" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "audits: [0.25",
            "audits: [judge 0.5",
            "evaluate.audits: `judge` needs its head, expected label.judge: true",
        ),
        (
            "rule: risk 0.9 audit 0.1",
            "rule: risk 0.9 judge 0.5",
            "label.rule: `risk 0.9 judge 0.5`: router 0 has no head `judge`",
        ),
    ],
)
def test_a_judge_must_be_trained(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, (old, new))
    assert str(refused.value).endswith(f"top level: {message}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("audits: [0.25", "audits: [kl 2", "evaluate.audits: a rule with `kl 2`: from this LLM"),
        ("audits: [0.25", "audits: [top 2", "evaluate.audits: a rule with `top 2`: from this LLM"),
        ("0.9 audit 0.1", "0.9 kl 2", "label.rule: a rule with `kl 2`: from this LLM only odds"),
        ("judge: false", "judge: true", "label.judge: expected false: it reads an LLM"),
    ],
)
def test_an_llm_behind_a_server_knows_odds_only(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, ("llm_url: null", "llm_url: http://host:1"), (old, new))
    assert message in str(refused.value)


def test_sampled_evaluation_refuses_what_samples_do_not_have(tmp_path: Path) -> None:
    sampled = ("sampling: null", "sampling: {temperature: 1.0}")
    assert loaded(tmp_path, sampled, ("audits: [0.25", "audits: [top 2")).evaluate.sampling
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, sampled, ("audits: [0.25", "audits: [kl 2"))
    assert "evaluate.audits: a rule with `kl 2`: answers are sampled" in str(refused.value)
