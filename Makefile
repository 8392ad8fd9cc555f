# `make demo` and `make test` need nothing but Python 3.11-3.13: they make the virtual environment themselves.
PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# One thread per process: tests and demo cells run side by side.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint nightly bench sweep batch-norm install clean

demo: install
	$(BIN)/python -m experiments.demo

test: lint
	$(BIN)/python -m pytest -q -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/mypy

nightly: install
	$(BIN)/python -m pytest -q -n 2 -m slow

bench: install
	$(BIN)/commeff bench step --csv results/bench_step.csv
	$(BIN)/commeff bench mix --csv results/bench_mix.csv

sweep: install
	$(BIN)/python -m experiments.sweep

batch-norm: install
	$(BIN)/python -m experiments.batch_norm

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
		|| { echo "commeff needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
