"""Run a command and print the most memory that it held at once, in bytes.

    python benchmarks/peak.py COMMAND …

A process of its own, since the kernel counts a child's peak from its parent's size on: this one's
is a few megabytes.
"""

import os
import subprocess
import sys

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def main() -> None:
    """Exit with the command's status; its output goes to standard error."""
    child = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    print(usage.ru_maxrss * UNIT)
    raise SystemExit(child.returncode)


if __name__ == "__main__":
    main()
