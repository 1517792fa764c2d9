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
            "  method: auto",
            "  judge: false\n  method: auto",
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
            "  method: auto",
            "  minutes: 60\n  method: auto",
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
            "  bounds:",
            "  rivals: [entropy]\n  bounds:",
            "evaluate: rivals was removed: evaluate.candidates has the methods, evaluate.bounds "
            "has random, query, oracle",
        ),
        (
            "  experiment: citer",
            "  experiment: citer\n  batch: 1",
            "register: batch was removed: serve.batch takes its place",
        ),
        (
            "\nscore:",
            "\nscore_slm: {}\nscore:",
            "top level: score_slm was removed: `score` takes its place",
        ),
        (
            "  source: auto",
            "  seed: 17\n  source: auto",
            "references: seed was removed: `seed`, at the top level, takes its place",
        ),
        (
            "  source: auto",
            "  tries: 3\n  source: auto",
            "references: tries was removed: the LLM answers each question once",
        ),
        (
            "  source: auto",
            "  sampling: null\n  source: auto",
            "references: sampling was removed: the LLM writes references greedily",
        ),
        (
            "  toy: #",
            "  seed: 17\n  toy: #",
            "prepare: seed was removed: `seed`, at the top level, takes its place",
        ),
        (
            "  traffic: []",
            "  audited: []\n  traffic: []",
            "prepare: audited was removed: prepare.traffic reads the questions of such answers",
        ),
        (
            "  method: auto",
            "  slots: 128\n  method: auto",
            "label: slots was removed: decode.slots takes its place",
        ),
        (
            "  risks:",
            "  max_new_tokens: 128\n  risks:",
            "evaluate: max_new_tokens was removed: decode.max_new_tokens takes its place",
        ),
        (
            "  method: auto",
            "  tie: drop\n  method: auto",
            "label: tie was removed: if both rollouts are wrong, the SLM's token is accepted",
        ),
        (
            "  processes: 1",
            "  checkpoint_steps: 75\n  processes: 1",
            "finetune: checkpoint_steps was removed: `steps` decides how often it is saved",
        ),
        (
            "  batch_tokens:",
            "  shard_problems: 128\n  batch_tokens:",
            "score: shard_problems was removed: every file has the tokens of 128 problems",
        ),
        (
            "  executor: local",
            "  executor: local\n  hostfile: null",
            "workers: hostfile was removed: all finetune.processes run on this machine",
        ),
        (
            "  executor: local",
            "  executor: local\n  address: auto",
            "workers: address was removed: RAY_ADDRESS in the environment takes its place",
        ),
        (
            "  executor: local",
            "  executor: local\n  stages: 2",
            "workers: stages was removed: stages run one after another, each on all devices",
        ),
        (
            "  executor: local",
            "  executor: local\n  devices: [0, 1]",
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
