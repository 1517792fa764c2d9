"""How many cases the drills have: DRILL times those of `make slow`. DRILL_SEED draws others."""

import os

SCALE = int(os.environ.get("DRILL", "1"))
SEED = int(os.environ.get("DRILL_SEED", "0"))
