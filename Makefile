# Two commands do everything: `make demo` runs the main job on this host, `make test` runs the tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# With an NVIDIA driver loaded, TensorFlow comes with NVIDIA's libraries; without one, its CPU build.
FLAVOUR := $(if $(wildcard /proc/driver/nvidia/version),cuda,cpu)
LOCK    := requirements/$(FLAVOUR).txt
READY   := $(VENV)/.ready-$(FLAVOUR)
PROCS   ?= 4
# Tests wait more than they compute, so there are three more of them at a time than CPUs. Tests on clusters run by themselves, as each fills the host.
SIDE    ?= $(shell echo $$(($$(nproc) + 3)))

# Images of containers set it; the tests start thousands of processes, which would each compile all that they import.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-gpu test-clusters check structure lint format types lock bench bench-quick pictures sdist wheel release-check clean .venv-ray

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[.a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make the environment (.venv) with the locked versions

$(READY): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "The locked TensorFlow is built for Python 3.11 to 3.13: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $$(test ! -e $(VENV)/pyvenv.cfg || echo --clear) $(VENV)
	@echo "Installing the locked versions ($(FLAVOUR)): a minute or two; 2 GB on disk, with NVIDIA's libraries several more."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## Plan, launch snake and show the status, on whatever this host has
	@BIN=$(BIN) PROCS=$(PROCS) sh scripts/demo

test: $(READY) ## Run the tests
	@$(BIN)/python -m pytest -q -rs -n $(SIDE) --dist worksteal --ignore tests/clusters $(PYTEST_OPTIONS)
	@$(BIN)/python -m pytest -q -rs tests/clusters -m "not long" $(PYTEST_OPTIONS)

test-clusters: $(READY) ## Run all that is tested on real clusters of three nodes, also what takes minutes (root)
	@$(BIN)/python -m pytest -q tests/clusters -rs

test-gpu: $(READY) ## Run only the tests that need a real GPU
	@$(BIN)/python -m pytest -m gpu -rs

check: $(READY) lint types structure test ## Run what CI runs: ruff, mypy --strict, tests

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

# What reads the source and nothing else: it fails in seconds, and not after all other tests.
structure: $(READY)
	@$(BIN)/python -m pytest -q tests/test_layering.py tests/test_sizes.py tests/test_plain_words.py tests/test_golden_names.py tests/test_signals.py tests/test_patience.py tests/cli/test_thin.py

types: $(READY)
	@$(BIN)/mypy

format: $(READY) ## Format the code and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: ## Resolve the exact versions again
	@$(UV) pip compile pyproject.toml $(LOCK_OPTIONS) --output-file requirements/base.txt
	@$(UV) pip compile pyproject.toml --extra dev --extra web --extra tensorflow --extra ray $(LOCK_OPTIONS) --output-file requirements/cpu.txt
	@$(UV) pip compile pyproject.toml --extra dev --extra web --extra cuda --extra ray $(LOCK_OPTIONS) --output-file requirements/cuda.txt
	@$(UV) pip compile requirements/ray.in $(LOCK_OPTIONS) --output-file requirements/ray.txt

UV := $(or $(wildcard $(BIN)/uv),uv)
LOCK_OPTIONS := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.venv-ray: .venv-ray/.ready ## Make Ray's environment, which only the bench has beside it

.venv-ray/.ready: requirements/ray.txt
	@$(PYTHON) -m venv --clear .venv-ray
	@echo "Installing Ray, to measure beside it: a minute or two; 2 GB on disk."
	@.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

bench: $(READY) ## Measure all beside its peers and write docs/benchmarks.md: 50 minutes of an idle host
	@$(MAKE) --no-print-directory .venv-ray || echo "Ray's environment cannot be made: its rows are left out."
	@$(BIN)/python -m bench.run --write

bench-quick: $(READY) ## A first look at the same, in six minutes; writes nothing
	@$(BIN)/python -m bench.run --quick

pictures: $(READY) ## Draw the pictures of plan, launch, status and the page again: twelve minutes of an idle host
	@$(BIN)/python -m bench.pictures

sdist: $(READY) ## Build the sdist into dist/
	@$(BIN)/hatchling build --target sdist

wheel: $(READY) ## Build the wheel into dist/
	@$(BIN)/hatchling build --target wheel

release-check: $(READY) ## Build sdist and wheel, install the wheel elsewhere, and run a job with it
	@PYTHON=$(BIN)/python scripts/release-check

clean: ## Remove what was made
	@rm -rf $(VENV) .venv-ray dist .hypothesis .mypy_cache .ruff_cache
