"""Ray on this machine, for one stage: `python -m citer.executors.head CORES`.

Prints its address, and ends with the process that holds the other end of its standard input.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

LONGEST = 44  # characters of the folder: Ray puts sockets there, whose paths may have 107
OBJECTS = 100 * 2**20  # bytes of shared memory: units and results are small


@contextmanager
def session_folder() -> Iterator[str]:
    """Yield a folder for Ray's sockets and logs. In `/tmp` if the usual path is too long."""
    home = gettempdir()
    fits = len(str(Path(home, "ray-12345678"))) <= LONGEST
    with TemporaryDirectory(prefix="ray-", dir=home if fits else "/tmp") as folder:
        yield folder


def main(cores: int) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    with session_folder() as folder:
        context = ray.init(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=OBJECTS,
            log_to_driver=False,
            logging_level="error",
            _temp_dir=folder,
        )
        print(context.address_info["address"], flush=True)
        sys.stdin.read()
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
