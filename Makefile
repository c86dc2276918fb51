# Everything runs in .venv, which is built once, and again when pyproject.toml or constraints.txt change.
#
#   make run      the quickstart: ceilings of one DGX H100, then 64 coding agents on it under three policies
#   make test     ruff, mypy, import-linter, pytest
#   make lint     the first three
#   make fast     the same program with its inner loops compiled, in .venv-fast (needs a C compiler): .venv-fast/bin/kvplan
#   make bench    speed, as it is and compiled
#   make figures  the pictures of the README
#   make validation  docs/validation.md: published measurements beside what is predicted (some minutes)
#
# A Python other than `python3`: make PYTHON=python3.12 run

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
QUICKSTART := scenarios/quickstart.yaml
FAST := .venv-fast
SOURCES := $(wildcard sim/*.py sim/*/*.py sim/*/*/*.py workloads/*.py hardware_profiles/*.py calibrate/*.py)

.PHONY: run test lint fast fast-test bench figures validation clean

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

fast: $(FAST)/.installed
	@echo "$(FAST)/bin/kvplan is ready."

# The laws, queueing theory and worked numbers on the compiled program.
fast-test: $(FAST)/.installed $(VENV)/.installed-test
	PYTHONPATH=$$(echo $(CURDIR)/$(FAST)/lib/python*/site-packages) $(BIN)/pytest tests/laws tests/theory tests/chapter

bench: $(VENV)/.installed-test $(FAST)/.installed
	$(BIN)/python -m pytest tests/bench

figures: $(VENV)/.installed
	$(BIN)/python docs/make_figures.py

validation: $(VENV)/.installed
	$(BIN)/python -m sim.report.validation docs/validation.md

clean:
	rm -rf $(VENV) $(FAST) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks

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

# Built from a source archive, so that no compiled file ever lies beside the source it would hide.
$(FAST)/.installed: pyproject.toml constraints.txt $(SOURCES) | $(BIN)/python
	@echo "Compiling kvplan into $(FAST): some two minutes."
	@test -x $(FAST)/bin/python || $(PYTHON) -m venv $(FAST) || { rm -rf $(FAST); exit 1; }
	@rm -rf build/fast
	$(FAST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt HATCH_BUILD_HOOK_ENABLE_MYPYC=1 CFLAGS=-ffp-contract=off \
		$(FAST)/bin/python -m build --outdir build/fast . > build.log 2>&1 || { cat build.log; rm build.log; exit 1; }
	@rm build.log
	$(FAST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build/fast/*.whl
	$(FAST)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps build/fast/*.whl
	@touch $@
