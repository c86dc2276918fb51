# Everything runs in .venv, which is built once, and again when pyproject.toml or constraints.txt change.
#
#   make run      the quickstart: ceilings of one DGX H100, then 64 coding agents on it under three policies
#   make test     ruff, mypy, import-linter, pytest
#   make lint     the first three
#   make bench    speed
#   make figures  the pictures of the README
#   make validation  docs/validation.md: published measurements beside what is predicted (some minutes)
#
# A Python other than `python3`: make PYTHON=python3.12 run

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
QUICKSTART := scenarios/quickstart.yaml

.PHONY: run test lint bench figures validation clean

run: $(VENV)/.installed
	$(BIN)/kvplan explain $(QUICKSTART)
	@echo
	$(BIN)/kvplan run $(QUICKSTART) --vary retention.policy=keep,drop,offload

test: lint
	$(BIN)/python -m pytest --ignore=tests/bench

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/bench

figures: $(VENV)/.installed
	$(BIN)/python docs/make_figures.py

validation: $(VENV)/.installed
	$(BIN)/python -m sim.report.validation docs/validation.md

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("kvplan needs Python 3.11 or later, and %s is %d.%d; say which: make PYTHON=python3.12 ..." % (sys.executable, v[0], v[1]))'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing kvplan into $(VENV): a minute or two, once."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing kvplan and its test tools into $(VENV): a minute or two, once."
	$(PIP) --editable '.[test]'
	@touch $(VENV)/.installed $@
