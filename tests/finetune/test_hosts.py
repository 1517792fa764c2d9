"""DeepSpeed's hostfile: what is refused, and training on two groups of ranks."""

import os
from pathlib import Path

import psutil
import pytest
import torch

from citer.errors import InputError
from citer.models.folder import ModelFolder
from citer.training.launch import Host, read_hosts
from citer.training.sft import finetune, plan
from tests.finetune.conftest import PARAMS, PLACEMENT
from tests.finetune.test_launch import LONG, PROBLEMS, killed_midway, ranks, weights

SSH = """#!/bin/sh
# Run the command here. The last two arguments are the host and the command.
while [ $# -gt 2 ]; do shift; done
echo "$1" >> ssh.log
exec sh -c "$2"
"""


@pytest.fixture
def hostfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hosts that are this machine, and a program `ssh` that reaches them."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    hosts = tmp_path / "hostfile"
    hosts.write_text("127.0.0.1 slots=1\nlocalhost slots=1\n")
    return hosts


def test_hosts_are_filled_in_the_order_of_the_file(tmp_path: Path) -> None:
    hosts = tmp_path / "hostfile"
    hosts.write_text("# our machines\nuser@one slots=4\n\n  two   slots=4\nthree slots=4\n")
    assert read_hosts(hosts, 6) == [Host("user@one", 4), Host("two", 2)]
    assert read_hosts(hosts, 12)[-1] == Host("three", 4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("one slots=2\ntwo\n", ":2: 'two': expected HOST slots=N"),
        ("one slots=0\n", ":1: 'one slots=0': expected HOST slots=N"),
        ("-oProxyCommand=x slots=1\n", ":1: '-oProxyCommand=x slots=1': expected HOST slots=N"),
        ("one slots=2\n\none slots=2\n", ":3: 'one': expected each host once"),
        ("one slots=2\ntwo slots=1\n", ": 3 slots: expected at least finetune.processes: 4"),
        ("", ": 0 slots: expected at least finetune.processes: 4"),
    ],
)
def test_a_bad_hostfile_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    hosts = tmp_path / "hostfile"
    hosts.write_text(text)
    with pytest.raises(InputError) as raised:
        read_hosts(hosts, 4)
    assert str(raised.value) == f"{hosts}{complaint}"


def test_other_hosts_need_deepspeed(base: ModelFolder) -> None:
    with pytest.raises(InputError, match="hostfile: needs DeepSpeed, expected null or"):
        plan(base.path, PLACEMENT, PARAMS, [Host("one", 1)])


@pytest.mark.slow
def test_two_hosts_give_the_weights_of_two_ranks_here(base: ModelFolder, hostfile: Path) -> None:
    here = finetune(base, PROBLEMS, Path("here"), PLACEMENT, ranks(2))
    there = finetune(base, PROBLEMS, Path("there"), PLACEMENT, ranks(2), hostfile)
    assert there == here
    torch.testing.assert_close(weights("there"), weights("here"), rtol=0, atol=0)
    assert sorted(Path("ssh.log").read_text().split()) == ["127.0.0.1", "localhost"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["launcher", "group"])
def test_when_a_part_is_killed_all_end_and_training_resumes(
    base: ModelFolder, hostfile: Path, victim: str
) -> None:
    finetune(base, PROBLEMS, Path("whole"), PLACEMENT, ranks(2, LONG))
    with killed_midway(base, ranks(2, LONG), hostfile) as process:
        started = process.children(recursive=True)
        groups = [child for child in started if "--node-rank=1" in child.cmdline()]
        assert len(groups) == 1
        assert len([each for each in started if "citer.training.launch" in each.cmdline()]) == 4
        if victim == "group":
            groups[0].kill()
            process.wait()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
    finetune(base, PROBLEMS, Path("resumed"), PLACEMENT, ranks(2, LONG), hostfile)
    torch.testing.assert_close(weights("resumed"), weights("whole"), rtol=0, atol=0)
