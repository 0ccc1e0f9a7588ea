# Everything that a person or CI runs. `make help` lists it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := docker/requirements
BENCH  ?= $(patsubst tests/benchmarks/%_bench.py,%,$(wildcard tests/benchmarks/*_bench.py))

.DEFAULT_GOAL := help

help:  ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.done  ## Create .venv from the locked, hashed requirements

$(VENV)/.done: $(LOCKS)/dev.txt pyproject.toml
	@echo "Setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCKS)/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Label 240 tickets on an embedded Valkey, with a real worker
	$(BIN)/batchmill demo

test: setup  ## Run every test
	$(BIN)/python -m pytest

faults: setup  ## Kill, freeze, cut and fill everything, over Valkey, Redis and SeaweedFS; FAULTS=long for 100,000 jobs
	FAULTS=$(or $(FAULTS),full) $(BIN)/python -m pytest tests/faults

.PHONY: chart
chart: setup  ## Lint, render and check the Helm chart; CRD_DIR=… for more schemas; needs promtool
	$(BIN)/python -m pytest tests/chart

check: setup  ## Lint, types, import rules, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## Let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## Measure beside the peers; BENCH=queue for one suite
	for suite in $(BENCH); do $(BIN)/python -m tests.benchmarks.$${suite}_bench || exit 1; done

lock: setup  ## Renew the locked requirements
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet --upgrade \
	  pyproject.toml -o $(LOCKS)/worker.txt
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  pyproject.toml --extra build --extra demo --extra ocr --group dev -c $(LOCKS)/worker.txt -o $(LOCKS)/dev.txt
	echo setuptools | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  pyproject.toml - --extra build -c $(LOCKS)/dev.txt -o $(LOCKS)/build.txt

clean:  ## Remove what was built here; downloads stay in the cache
	rm -rf $(VENV) .bench build *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: help setup demo test faults check format bench lock clean
