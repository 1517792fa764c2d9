"""How many cases the drills have: DRILL times those of `make slow`. DRILL_SEED draws others."""

import os
from collections.abc import Callable

SCALE = int(os.environ.get("DRILL", "1"))
SEED = int(os.environ.get("DRILL_SEED", "0"))

Record = Callable[[str, object], None]  # pytest's record_property: what was drilled, how often
