"""The console script `citer`. A process that has imported the stages can run the command in a fork.

That process listens on a Unix socket, which the variable `CITER_DOOR` names (`flows.forkserver`).
It gets the command's arguments, environment, folder and streams, and answers with the exit status.
Without the variable, or if nobody listens, the command runs in this process.
"""

import json
import os
import socket
import sys

DOOR = "CITER_DOOR"
STREAMS = (0, 1, 2)
LOST = 137  # the exit status if the answer never comes: that of a process ended by SIGKILL


def main() -> None:
    """Entry point of the console script. It imports nothing slow before it knows where to run."""
    if door := os.environ.pop(DOOR, None):
        _knock(door)
    from citer.cli.main import main as run

    run()


def _knock(door: str) -> None:
    """Let the process behind the door run this command, and exit. Returns if nobody listens."""
    with socket.socket(socket.AF_UNIX) as behind:
        try:
            behind.connect(door)
        except OSError:
            return
        command = {"argv": sys.argv, "environment": {**os.environ}, "folder": os.getcwd()}
        socket.send_fds(behind, [b"."], STREAMS)
        behind.sendall(f"{json.dumps(command)}\n".encode())
        with behind.makefile() as answer:
            os._exit(int(answer.readline() or LOST))
