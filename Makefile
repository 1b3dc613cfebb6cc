# Two commands do everything on a machine with Python >= 3.11, make and git: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Threads that wait give their core away: on a busy machine the demo then takes one minute, not thirteen.
export OMP_WAIT_POLICY ?= PASSIVE

help:            ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## a virtual environment in .venv with everything the other targets need

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlcpc needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup      ## Figures 1 and 2, a short staircase, claims and a report, in demo/ (about two minutes, offline)
	$(BIN)/mlcpc demo --out demo

test: setup      ## the fast suite
	$(BIN)/pytest -q -n 2 -m 'not slow'

test-all: setup  ## every test
	$(BIN)/pytest -q -n 2

check: setup     ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m reliability.audit

audit: setup     ## known vulnerabilities of what is installed (says so where none can be asked for)
	$(BIN)/python -m reliability.audit

dist: setup      ## wheel and sdist in dist/: the same bytes twice, installed into empty environments and tested
	$(BIN)/python -m reliability.dist

reliability: setup  ## a fifteen-minute cut of the campaigns of kills, faults, hostile files, numbers and long use
	$(BIN)/python -m reliability --minutes 15 --out build/reliability

lowest: $(VENV)-lowest/.ready  ## the core's tests with the lowest versions that pyproject.toml allows (gigabytes of torch)
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/pytest -q -p no:cacheprovider -W ignore -m 'not slow' $(CORE)

newest: $(VENV)-newest/.ready  ## the same with the newest there are
	OMP_NUM_THREADS=1 $(VENV)-newest/bin/pytest -q -p no:cacheprovider -W ignore -m 'not slow' $(CORE)

CORE := $(addprefix tests/test_,$(addsuffix .py,bounds objectives schedules exact theory contrastive queues draws \
	checkpoints loop models data data_loader mi mi_inputs mi_command estimator cli training hostile))
WHICH_lowest := lowest-direct
WHICH_newest := highest

$(VENV)-lowest/.ready $(VENV)-newest/.ready: $(VENV)-%/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/pip install --quiet --disable-pip-version-check uv
	$(VENV)-$*/bin/uv pip install --quiet --python $(VENV)-$*/bin/python --resolution $(WHICH_$*) -e '.[dev]'
	@touch $@

bench: $(VENV)-peers/.ready  ## speed and memory against the best peers (writes results/bench; half an hour)
	$(VENV)-peers/bin/python -m benchmarks

peers: $(VENV)-peers/.ready  ## the adapters and examples with the real packages, in an environment of their own
	HF_HUB_OFFLINE=1 $(VENV)-peers/bin/pytest -q -p no:cacheprovider -W ignore tests/test_adapters.py tests/test_examples.py

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

docs: $(VENV)/.docs  ## the documentation as a site, in site/ (`make test` runs its examples)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

$(VENV)/.docs: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

smoke: setup     ## every figure and table at its smallest scale, in smoke/ (some minutes)
	$(BIN)/mlcpc reproduce all --scale smoke --out smoke --runs smoke/runs

readme: setup    ## the numbers in README.md and docs, from results/
	$(BIN)/python -m benchmarks.readme

report: setup    ## every figure at its paper scale and the claims, in results/; the page of all of it, in report/
	$(BIN)/mlcpc reproduce all --out results
	$(BIN)/mlcpc report

.PHONY: help setup demo test test-all check audit dist reliability lowest newest bench bench-mi peers docs smoke readme report
