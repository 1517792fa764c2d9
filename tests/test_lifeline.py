import os
import threading

from citer.lifeline import when_closed


def test_end_is_called_when_the_last_writer_closes_the_pipe() -> None:
    ours, theirs = os.pipe()
    also_theirs, ended = os.dup(theirs), threading.Event()
    when_closed(ours, ended.set)
    os.close(theirs)
    assert not ended.is_set()
    os.close(also_theirs)
    assert ended.wait(20)
    os.close(ours)
