"""Run a command and print its peak resident memory, in bytes.

    python benchmarks/peak.py COMMAND …

This needs a small process of its own: the kernel starts a child's peak at its parent's size.
"""

import os
import subprocess
import sys

UNIT = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss


def main() -> None:
    """Run the command with its output on stderr, and exit with its status."""
    child = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    print(usage.ru_maxrss * UNIT)
    raise SystemExit(child.returncode)


if __name__ == "__main__":
    main()
