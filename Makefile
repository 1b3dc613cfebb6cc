# Two commands do everything on a machine with Python >= 3.11, make and git: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

help:            ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## a virtual environment in .venv with everything the other targets need

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlcpc needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup      ## Figures 1 and 2 and a short staircase of mutual information, in demo/ (about two minutes, offline)
	$(BIN)/mlcpc demo --out demo

test: setup      ## the fast suite
	$(BIN)/pytest -q -n 2 -m 'not slow'

test-all: setup  ## every test
	$(BIN)/pytest -q -n 2

check: setup     ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)-peers/.ready  ## speed and memory against the best peers (writes results/bench; half an hour)
	$(VENV)-peers/bin/python -m benchmarks

peers: $(VENV)-peers/.ready  ## the adapters against the real packages, in an environment of their own
	HF_HUB_OFFLINE=1 $(VENV)-peers/bin/pytest -q -p no:cacheprovider -W ignore tests/test_adapters.py

bench-mi: $(VENV)-peers-mi/.ready  ## the estimator of mutual information against its peers (twenty minutes)
	$(VENV)-peers-mi/bin/python -m benchmarks.mi_peers

$(VENV)-peers-mi/.ready: pyproject.toml constraints.txt benchmarks/requirements-peers-mi.txt
	$(PYTHON) -m venv $(VENV)-peers-mi
	$(VENV)-peers-mi/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(VENV)-peers-mi/bin/pip install --quiet --disable-pip-version-check -r benchmarks/requirements-peers-mi.txt
	@touch $@

$(VENV)-peers/.ready: pyproject.toml constraints.txt benchmarks/requirements-peers.txt benchmarks/requirements-peers-nodeps.txt
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -r benchmarks/requirements-peers.txt
	$(VENV)-peers/bin/pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/requirements-peers-nodeps.txt
	@touch $@

docs: setup      ## run every example in README and docs
	$(BIN)/pytest -q README.md docs

report: setup    ## every figure at its paper scale, under results/
	$(BIN)/mlcpc reproduce all --scale paper --out results

.PHONY: help setup demo test test-all check bench bench-mi peers docs report
