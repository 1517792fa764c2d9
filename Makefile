# `make demo`: the whole retraining on the embedded default. `make test`: the tests. Either may be
# the first thing that happens in a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: install demo test slow check drill

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("citer needs Python 3.11 or later: make PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[pipeline,dev]'
	@touch $@

demo: install
	$(BIN)/citer run

test: install
	$(BIN)/pytest -n auto --maxprocesses 4 -m "not slow and not gpu"

slow: install
	$(BIN)/pytest -m "slow and not gpu"

# Kills and damaged inputs by the score; `make slow` has a tenth of them.
drill: install
	DRILL_KILLS=60 DRILL_CASES=2000 $(BIN)/pytest -s tests/drills

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy
