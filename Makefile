# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests side by side; most of a process test is waiting.
WORKERS ?= 3
# Faults wait for ceilings more than they compute.
CHAOS_WORKERS ?= 4
READY := $(VENV)/.ready
# A run is many processes; without bytecode files each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check chaos simulation format clean

help:
	@echo "make demo        set up, then train charlm on two hosts' worth of processes"
	@echo "make test        set up, then run every test"
	@echo "make check       formatting, lint, types, import contracts"
	@echo "make chaos       kill, stop and cut off real processes of real runs"
	@echo "make simulation  300 seeds of the deterministic simulator"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "flodl needs Python 3.11 or newer; run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	@touch $@

demo: setup
	$(BIN)/flodl headless charlm --hosts 2 --ranks-per-host 2 --mode cpu_sync

test: setup
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not chaos and not long and not simulation"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chaos: setup
	$(BIN)/python -m pytest -q -n $(CHAOS_WORKERS) --dist worksteal -m "chaos or long"

simulation: setup
	$(BIN)/python -m pytest -q -m simulation

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
