import os
import threading

from citer.executors.base import when_closed


def test_end_is_called_when_the_last_writer_closes_the_pipe() -> None:
    reader, writer = os.pipe()
    second_writer, ended = os.dup(writer), threading.Event()
    when_closed(reader, ended.set)
    os.close(writer)
    assert not ended.is_set()
    os.close(second_writer)
    assert ended.wait(20)
    os.close(reader)
