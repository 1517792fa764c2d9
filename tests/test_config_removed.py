"""Settings that were removed are refused, each in one line that says what to use instead."""

from pathlib import Path

import pytest

from citer.config.params import Params, load_params
from citer.errors import InputError

SHIPPED = Path(__file__).parents[1] / "citer/config/params.yaml"


def loaded(folder: Path, *changes: tuple[str, str]) -> Params:
    """Load the shipped settings, each `old` text replaced by `new` where it last occurs."""
    text = SHIPPED.read_text()
    for old, new in changes:
        assert old in text
        text = new.join(text.rsplit(old, 1))
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "  tie: slm",
            "  judge: false\n  tie: slm",
            "label: judge was removed: rules with `audit β` need no head `judge`",
        ),
        (
            "  method: auto",
            "  outcome: rollout",
            "label: outcome was removed: label.method takes its place",
        ),
        (
            "  method: auto",
            "  method: agreement",
            "label.method: 'agreement' was removed; expected suffix, which needs no rollouts, in "
            "its place",
        ),
        (
            "  tie: slm",
            "  minutes: 60\n  tie: slm",
            "label: minutes was removed: label.method says how tokens are labelled",
        ),
        (
            "  patience: 4",
            "  seeds: 1\n  patience: 4",
            "train: seeds was removed: `python -m benchmarks.study` trains with several seeds",
        ),
        (
            "audits: [0.25",
            "audits: [kl 1.0",
            "evaluate.audits.0: 'kl 1.0': expected β above 0 and at most 1; other acceptance rules "
            "were removed",
        ),
        (
            "[entropy, random,",
            "[confidence, random,",
            "evaluate.rivals.0: 'confidence' was removed; expected entropy in its place",
        ),
        (
            "\nscore:",
            "\nscore_slm: {}\nscore:",
            "top level: score_slm was removed: `score` takes its place",
        ),
        (
            "  tries: 1",
            "  seed: 17\n  tries: 1",
            "references: seed was removed: prepare.seed takes its place",
        ),
        (
            "  stages: 1",
            "  address: auto\n  stages: 1",
            "workers: address was removed: RAY_ADDRESS in the environment takes its place",
        ),
        (
            "  stages: 1",
            "  devices: [0, 1]\n  stages: 1",
            "workers: devices was removed: CUDA_VISIBLE_DEVICES in the environment takes its place",
        ),
        (
            "rule: risk 0.9 audit 0.1",
            "rule: risk 0.9 top 3",
            "label.rule: 'risk 0.9 top 3': `top` was removed; expected `audit β` in its place",
        ),
    ],
)
def test_a_removed_setting_is_refused_with_its_replacement(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, (old, new))
    line = str(refused.value)
    assert "\n" not in line
    assert line.startswith(f"{tmp_path}/params.yaml: {message}")


def test_audits_are_whole_or_decimal_numbers(tmp_path: Path) -> None:
    assert loaded(tmp_path, ("audits: [0.25, 1.0]", "audits: [0.25, 1]")).evaluate.audits == (
        0.25,
        1.0,
    )
