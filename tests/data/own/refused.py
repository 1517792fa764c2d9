"""A grader's process to which the kernel refuses namespaces: `python -m tests.data.own.refused`."""

import sys

from citer.data.tasks import own_box as box
from citer.data.tasks import own_child as child

box.USER = 1  # no such namespace

if __name__ == "__main__":
    child.main(*sys.argv[1:])
