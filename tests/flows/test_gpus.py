"""How many stages run at the same time, which GPUs each gets, and the device of a run."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from citer.config.params import Params, load_params
from citer.errors import InputError
from flows.gpus import VISIBLE, Room, on_device, room

FOUR = ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("space", "ready", "running", "started"),
    [
        (Room(1), "ab", {}, {"a": ()}),
        (Room(2), "abc", {}, {"a": (), "b": ()}),
        (Room(2), "bc", {"a": ()}, {"b": ()}),
        (Room(2), "c", {"a": (), "b": ()}, {}),
        (Room(2, FOUR), "a", {}, {"a": FOUR}),
        (Room(2, FOUR), "abc", {}, {"a": ("0", "2"), "b": ("1", "3")}),
        (Room(3, FOUR), "bc", {"a": ("0", "3")}, {"b": ("1",), "c": ("2",)}),
        (Room(3, FOUR), "b", {"a": FOUR}, {}),
        (Room(2, FOUR, frozenset("a")), "ab", {}, {"a": FOUR}),
        (Room(2, FOUR, frozenset("a")), "ac", {"b": ("0",)}, {}),
        (Room(2, FOUR, frozenset("b")), "ab", {}, {"a": FOUR}),
    ],
)
def test_ready_stages_start_where_there_is_room_and_share_the_free_gpus(
    space: Room, ready: str, running: dict[str, Any], started: dict[str, Any]
) -> None:
    assert space.starts(list(ready), running) == started


def params(**sections: dict[str, Any]) -> Params:
    params = load_params()
    changed = {name: getattr(params, name).model_copy(update=s) for name, s in sections.items()}
    return params.model_copy(update=changed)


TWO, GREEDY = {"stages": 2}, frozenset(["finetune"])


@pytest.mark.parametrize(
    ("gpus", "visible", "sections", "expected"),
    [
        (8, None, {}, Room(1)),
        (0, None, {"workers": TWO}, Room(2)),
        (1, None, {"workers": TWO}, Room(1, ("0",))),
        (4, None, {"workers": TWO}, Room(2, FOUR)),
        (4, None, {"workers": TWO, "pair": {"device": "cpu"}}, Room(2)),
        (2, "GPU-a,GPU-b", {"workers": TWO}, Room(2, ("GPU-a", "GPU-b"))),
        (4, None, {"workers": TWO, "pair": {"llm_device_map": "auto"}}, Room(1)),
        (4, None, {"workers": TWO, "finetune": {"processes": 4}}, Room(2, FOUR, GREEDY)),
    ],
)
def test_the_room_is_that_of_params_and_of_the_machine(
    gpus: int,
    visible: str | None,
    sections: dict[str, Any],
    expected: Room,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv(VISIBLE, raising=False)
    if visible:
        monkeypatch.setenv(VISIBLE, visible)
    assert room(params(**sections)) == expected


def test_the_device_of_a_run_overrides_that_of_params_during_the_run() -> None:
    before = dict(os.environ)
    with on_device("cpu"):
        assert load_params().pair.device == "cpu"
    with on_device("auto"):
        assert load_params().pair.device == "auto"
    assert dict(os.environ) == before


def test_auto_leaves_the_device_to_the_workers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITER_DEVICE", "cpu")
    with on_device("auto"):
        assert load_params().pair.device == "cpu"
    assert os.environ["CITER_DEVICE"] == "cpu"


def test_a_run_that_asks_for_a_missing_gpu_ends_before_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="CITER_DEVICE: 'cuda': no CUDA device"), on_device("cuda"):
        pytest.fail("a stage would run")
    text = Path("params.yaml").read_text().replace("device: auto", "device: cuda")
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    with pytest.raises(InputError, match=r"pair\.device: 'cuda': no CUDA"), on_device("auto"):
        pytest.fail("a stage would run")
    assert "CITER_DEVICE" not in os.environ
