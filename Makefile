# `make demo` runs a whole retraining on the embedded pair. `make test` runs the fast tests. Every
# target installs the dependencies first, also in a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
VLLM_PYTHON ?= .venv-vllm/bin/python

.PHONY: install demo test slow vllm check drill

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("citer needs Python 3.11 or later: make PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[pipeline,serve,dev]'
	@touch $@

demo: install
	$(BIN)/citer run

test: install
	$(BIN)/pytest -n auto --maxprocesses 4 -m "not slow and not gpu and not vllm"

slow: install
	$(BIN)/pytest -n 2 --dist loadfile -m "slow and not gpu and not vllm"

# Tests against a real vLLM, in an environment of its own: make vllm VLLM_PYTHON=… to use another.
vllm: install $(if $(filter .venv-vllm/%,$(VLLM_PYTHON)),.venv-vllm/.installed)
	VLLM_PYTHON=$(abspath $(VLLM_PYTHON)) $(BIN)/pytest -n 2 --dist loadfile -m vllm tests/vllm

.venv-vllm/.installed: .ci/vllm
	.ci/vllm $(PYTHON)

# Kill runs and damage inputs at many random places. `make slow` runs a tenth of them.
drill: install
	DRILL=10 $(BIN)/pytest -s tests/drills

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy
