"""What code that a model wrote may try while it is graded, with namespaces and without."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.data.tasks import own_box as box
from citer.data.tasks import own_grader as grader
from citer.data.tasks.grading import Grade, assess
from citer.data.tasks.own import OwnTask
from citer.data.tasks.own_grader import _warning
from citer.executors.base import Unit
from citer.executors.processes import Forked

WriteTask = Callable[..., str]
MARK = "98765.4321"  # seconds of a process that hostile code starts

DAEMON = f"""
ready, alive = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    os.execv('/bin/sleep', ['sleep', '{MARK}'])
os.close(alive)
os.read(ready, 1)
"""  # reads until exec has closed the pipe


def is_boxed() -> bool:
    """Whether the kernel allows namespaces."""
    task = find_task("python:data/own/t.py:Own")
    assert isinstance(task, OwnTask)
    assert task._grader._child
    return task._grader._child.is_boxed


@pytest.fixture(params=["boxed", "refused"])
def boxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether graders get namespaces. They must work with both."""
    if request.param == "refused":
        monkeypatch.setattr(grader, "CHILD", "tests.data.own.refused")
    return request.param == "boxed"


@pytest.fixture
def graded(write_task: WriteTask, boxed: bool) -> Callable[..., Grade]:
    """Grade an answer by a body of `grade`. Skips where the kernel refuses what the test needs."""

    def grade(body: str, attributes: str = "time_limit = 60") -> Grade:
        task = write_task(f"if completion == 'yes': return 1\n{body}", attributes)
        problem = parse_row({"q": "yes"}, task, "answer")
        assert assess(problem, "yes") == Grade(True, 1)
        if boxed and not is_boxed():
            pytest.skip("the kernel refuses namespaces")
        assert is_boxed() == boxed
        result = assess(problem, "no")
        assert assess(problem, "yes") == Grade(True, 1)
        return result

    return grade


@pytest.fixture
def only_boxed(boxed: bool) -> None:
    if not boxed:
        pytest.skip("docs/own-data.md says that this needs namespaces")


def left() -> list[int]:
    """Return the processes that hostile code has left."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes() == f"sleep\0{MARK}\0".encode():
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    assert left() == []
    yield
    for pid in left():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("ending", "attributes", "expected"),
    [
        ("return 1", "time_limit = 60", Grade(True, 1)),
        ("os._exit(0)", "time_limit = 60", None),
        ("time.sleep(99)", "time_limit = 1", Grade(False, 0, "timeout after 1 s")),
    ],
)
def test_no_process_outlives_its_answer(
    graded: Callable[..., Grade], ending: str, attributes: str, expected: Grade | None
) -> None:
    grade = graded(f"{DAEMON}{ending}", attributes)
    assert left() == []
    assert grade == (expected or grade)


PARENT = """
import os, signal
from citer.data.importing import parse_row
from citer.data.tasks import own_grader as grader
from citer.data.tasks.grading import assess
grader.CHILD = {child!r}
print(assess(parse_row({{"q": "yes"}}, {task!r}, "answer"), "no").failure)
"""


def test_no_process_outlives_the_parent(write_task: WriteTask, boxed: bool) -> None:
    task = write_task(f"{DAEMON}time.sleep(99)", "time_limit = 99")
    code = PARENT.format(child=grader.CHILD, task=task)
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        while not left():
            assert parent.poll() is None
            time.sleep(0.01)
        parent.kill()
    deadline = time.monotonic() + 30
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left() == []


def test_a_bomb_ends_with_its_answer(graded: Callable[..., Grade], boxed: bool) -> None:
    per_namespace = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 14)
    if not os.getuid() and not (boxed and per_namespace):
        pytest.skip("docs/own-data.md says that the processes of root are not limited")
    body = """
for count in range(9999):
    if not os.fork():
        time.sleep(99)"""
    assert graded(body).failure == "BlockingIOError: [Errno 11] Resource temporarily unavailable"


def test_no_variable_of_the_environment_is_seen(write_task: WriteTask, boxed: bool) -> None:
    body = """
seen = [*os.environ]
for place in os.listdir('/proc'):
    try:
        with open(f'/proc/{place}/environ') as file:
            seen += file.read().split(chr(0))
    except OSError:
        pass
raise ValueError(sorted({name.partition('=')[0] for name in seen} & {'CITER_API_KEYS', 'HOME'}))"""
    code = PARENT.format(child=grader.CHILD, task=write_task(body))
    env = os.environ | {"CITER_API_KEYS": "secret"}
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, env=env, capture_output=True, text=True).stdout
    if boxed or not os.getuid():
        assert shown == "ValueError: ['HOME']\n"
    else:  # the kernel shows a user the environment of his other processes
        assert "HOME" in shown


def test_the_home_is_the_folder_of_the_answer(graded: Callable[..., Grade]) -> None:
    body = """
import tempfile
with tempfile.NamedTemporaryFile() as file:
    here = os.path.dirname(file.name)
return os.path.expanduser('~') == os.environ['HOME'] == os.getcwd() == here"""
    assert graded(body) == Grade(True, 1)


@pytest.mark.usefixtures("only_boxed")
def test_no_socket_reaches_anybody(graded: Callable[..., Grade]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0citer-{os.getpid()}")
        local.listen()
        body = f"""
import socket
reached = []
for family, address in (
    (socket.AF_INET, {server.getsockname()}),
    (socket.AF_INET, ('1.1.1.1', 53)),
    (socket.AF_UNIX, {local.getsockname()!r}),
):
    try:
        socket.socket(family).connect(address)
        reached.append(address)
    except OSError:
        pass
return not reached"""
        assert graded(body) == Grade(True, 1)


@pytest.mark.usefixtures("only_boxed")
def test_files_are_read_only_and_right_answers_are_hidden(
    graded: Callable[..., Grade], project: Path
) -> None:
    (project / "mine").write_text("mine")
    (project / "data/own/rows.jsonl").write_text("{}")
    body = f"""
done = os.listdir('{project}/data') if os.path.exists('{project}/data') else []
for path in ('{project}/mine', '{project}', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger'):
    if os.access(path, os.W_OK):  # only asks, so that a failure does no harm
        done.append(path)
for change in (os.unlink, os.truncate, os.chmod):
    try:
        change('{project}/mine', *[0] * (change is not os.unlink))
        done.append(str(change))
    except OSError:
        pass
raise ValueError(done)"""
    assert graded(body).failure == "ValueError: []"
    assert (project / "mine").read_text() == "mine"


@pytest.mark.usefixtures("only_boxed")
def test_the_checkout_of_a_retraining_and_the_sockets_of_a_run_are_hidden(
    graded: Callable[..., Grade], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR may lie outside of /tmp, as on clusters. Anybody who reaches a socket runs code."""
    tree = project / "checkout/.retrain/2026-01-01-0300"
    shutil.copytree(project / "data", tree / "data")
    scratch = Path.home() / f".citer-test-{os.getpid()}"
    places = [project / "checkout/data/own", project / "checkout/.git", scratch / "pymp-1"]
    monkeypatch.chdir(tree)
    try:
        for place in places:
            place.mkdir(parents=True)
            (place / "secret").write_text("31")
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        found = f"raise ValueError([p for p in {[*map(str, places)]} if os.path.exists(p)])"
        assert graded(found).failure == "ValueError: []"
    finally:
        shutil.rmtree(scratch)


@pytest.mark.usefixtures("only_boxed")
def test_devices_are_closed_but_harmless_ones(graded: Callable[..., Grade]) -> None:
    body = """
opened = []
for name in ('full', 'null', 'random', 'urandom', 'zero', 'fuse', 'kmsg', 'kvm', 'ptmx', 'vda'):
    try:
        os.close(os.open(f'/dev/{name}', os.O_RDONLY | os.O_NONBLOCK))
        opened.append(name)
    except OSError:
        pass
return opened == ['full', 'null', 'random', 'urandom', 'zero']"""
    assert graded(body) == Grade(True, 1)


def test_all_bytes_of_an_answer_are_limited(graded: Callable[..., Grade], boxed: bool) -> None:
    body = """
for name in range(20):
    with open(str(name), 'wb') as file:
        file.write(bytes(2**23))
time.sleep(99)"""
    failure = graded(body).failure
    wrote = "OSError: [Errno 28] No space left on device" if boxed else "wrote more than 67,108,864"
    assert failure
    assert failure.startswith(wrote)


def test_a_link_is_not_followed_when_the_folder_is_removed(
    graded: Callable[..., Grade], project: Path
) -> None:
    (project / "mine").write_text("mine")
    body = f"""
os.symlink('{project}', 'link')
os.mkdir('closed')
os.symlink('{project}/mine', 'closed/mine')
os.chmod('closed', 0)
return 1"""
    assert graded(body) == Grade(True, 1)
    assert (project / "mine").read_text() == "mine"


def test_a_signal_to_the_graders_process_makes_no_answer_right(
    graded: Callable[..., Grade], boxed: bool
) -> None:
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        grade = graded(f"os.kill(os.getppid(), {number})\ntime.sleep({0 if boxed else 99})")
        assert (grade.correct, grade.share) == (False, 0)
        assert grade.failure
        if boxed:  # the first process of a namespace gets no signal from within
            assert grade.failure.startswith("ValueError: grade() returned None")


def test_a_reply_that_is_none_is_a_failure(write_task: WriteTask, boxed: bool) -> None:
    body = """
for pipe in range(3, 99):
    try:
        os.set_blocking(pipe, False)
        os.write(pipe, eval(completion))
    except OSError:
        pass
os._exit(0)"""
    problem = parse_row({"q": "yes"}, write_task(body), "answer")
    share, failure = """b'{"share": ?}'""", """b'{"failure": 1}'"""
    shares = [share.replace("?", text) for text in ("7", "-1", "NaN", '"1"', "[]", "1e999")]
    junk = ["b'1'", "b'[]'", "b'['*4000", "b'\\xff'", "b'\\0\\0\\1\\0{'", "b'{' * 10**6"]
    for reply in (*shares, *junk, failure):
        assert assess(problem, reply).failure == "its process sent no reply that can be read"


def test_code_of_the_answer_gains_no_privileges(graded: Callable[..., Grade]) -> None:
    body = """
import subprocess
status = subprocess.run(['grep', '-E', '^(CapEff|CapPrm|NoNewPrivs)', '/proc/self/status'],
                        capture_output=True, text=True).stdout.split()
return status == ['CapPrm:', '0' * 16, 'CapEff:', '0' * 16, 'NoNewPrivs:', '1']"""
    assert graded(body) == Grade(True, 1)


@pytest.mark.usefixtures("only_boxed")
def test_nothing_of_the_kernel_outlives_an_answer(graded: Callable[..., Grade]) -> None:
    body = """
import ctypes
libc = ctypes.CDLL(None)
return {libc.shmget(1, 4096, 0o1600), libc.msgget(1, 0o1600), libc.unshare(0x10000000)} == {-1}"""
    assert graded(body) == Grade(True, 1)


class AssessAll:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, texts: Sequence[str], /, *, advance: object) -> list[float]:
        return [assess(self.problem, text).share for text in texts]


def test_one_warning_says_that_namespaces_are_refused(
    write_task: WriteTask, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grader, "CHILD", "tests.data.own.refused")
    _warning.cache_clear()
    problem = parse_row({"q": "yes"}, write_task("return 1"), "answer")
    find_task(problem.task)
    units = [Unit(str(n), ["yes", "no"]) for n in range(4)]
    assert list(Forked(2).run(AssessAll(problem), units, lambda _: None)) == [[1, 1]] * 4
    assert assess(problem, "yes").share == 1
    assert capfd.readouterr().err.count("the kernel refuses namespaces") == 1


@pytest.mark.parametrize(("linux", "is_limited"), [("6.13.9-x", False), ("6.14.0", True)])
def test_the_pid_limit_of_the_machine_is_never_changed(
    linux: str, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 6.14 it is that of all namespaces, and root could write it."""
    written, mounted = list[str](), list[tuple[object, ...]]()
    with monkeypatch.context() as faked:  # `os.uname` and files serve others, too
        faked.setattr(os, "uname", lambda: os.uname_result(("Linux", "", linux, "", "")))
        faked.setattr(Path, "write_text", lambda path, _: written.append(path.name))
        for name in ("_mount", "_set", "_call"):
            faked.setattr(box, name, lambda *given, **_: mounted.append(given))
        box.seal()
    assert ("pid_max" in written, "shmmni" in written) == (is_limited, True)
    assert mounted
