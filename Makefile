# Everything that a person or CI runs. `make help` lists it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := docker/requirements
BENCH  ?= $(patsubst tests/benchmarks/%_bench.py,%,$(wildcard tests/benchmarks/*_bench.py))

.DEFAULT_GOAL := help

help:  ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.done  ## Create .venv from the locked, hashed requirements

$(VENV)/.done: $(LOCKS)/dev.txt pyproject.toml
	@echo "Setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCKS)/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Label 240 tickets on an embedded Valkey, with a real worker
	$(BIN)/batchmill demo

test: setup  ## Run every test, in two lanes at once
	@$(MAKE) --no-print-directory --jobs=2 test-rest test-beside

# What mostly waits, and what needs one core, runs beside the rest. Servers, ports and files are each lane's own.
BESIDE := tests/acceptance tests/faults tests/unit

test-rest:
	$(BIN)/python -m pytest $(addprefix --ignore=,$(BESIDE))

# What it says comes in one piece, once it has ended: the other lane shows how it gets on.
test-beside:
	@mkdir -p .bench
	$(BIN)/python -m pytest $(BESIDE) >.bench/$@.txt 2>&1; status=$$?; cat .bench/$@.txt; exit $$status

faults: setup  ## Kill, freeze, cut and fill everything, over Valkey, Redis and SeaweedFS; FAULTS=long for 100,000 jobs
	FAULTS=$(or $(FAULTS),full) $(BIN)/python -m pytest tests/faults tests/integration/test_ocr_shared_files_in_a_worker.py

.PHONY: chart
chart: setup  ## Lint, render and check the Helm chart; CRD_DIR=… for more schemas; needs promtool
	$(BIN)/python -m pytest tests/chart

check: setup  ## Lint, types, import rules, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/Dockerfile

format: setup  ## Let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## Measure beside the peers; BENCH=queue for one suite
	for suite in $(BENCH); do $(BIN)/python -m tests.benchmarks.$${suite}_bench || exit 1; done

lock: setup  ## Renew the locked requirements
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet --upgrade \
	  pyproject.toml -o $(LOCKS)/worker.txt
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  pyproject.toml --extra build --extra demo --extra ocr --extra simulate --group dev -c $(LOCKS)/worker.txt -o $(LOCKS)/dev.txt
	echo setuptools | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  pyproject.toml - --extra build -c $(LOCKS)/dev.txt -o $(LOCKS)/build.txt
	echo 'onnxruntime-gpu[cuda,cudnn]' | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  pyproject.toml - -c $(LOCKS)/worker.txt --no-emit-package onnxruntime -o $(LOCKS)/gpu.txt
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["ocr"], sep="\n")' \
	  | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  - -c $(LOCKS)/dev.txt -o $(LOCKS)/ocr.txt
	echo cyclonedx-bom | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  - -o $(LOCKS)/sbom.txt
	$(MAKE) lock-check

lock-check: setup  ## Resolve what is in the image for Intel and ARM, from wheels alone
	for machine in x86_64 aarch64; do for version in 3.11 3.13; do for lock in worker build ocr sbom; do \
	  echo "$$lock for $$machine, Python $$version" && \
	  $(BIN)/uv pip install --dry-run --quiet --only-binary :all: --require-hashes --target .bench/never \
	    --python-platform $$machine-unknown-linux-gnu --python-version $$version -r $(LOCKS)/$$lock.txt || exit 1; \
	done; done; done

image-check: setup lock-check  ## Build the image with buildah, as root, and let it do a job; IMAGE_GPU=1 for the target gpu, too
	$(BIN)/python -m pytest -s tests/image/image_check.py

clean:  ## Remove what was built here; downloads stay in the cache
	rm -rf $(VENV) .bench build *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.PHONY: help setup demo test test-rest test-beside faults check format bench lock lock-check image-check clean
