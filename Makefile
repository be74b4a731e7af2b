# Everything a fresh machine needs is set up from here: Python 3.11+ and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS ?= 2
DATA ?= .run/data
# Hashes, but no addresses: where packages come from is the machine's business.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --quiet --upgrade

.PHONY: help run demo demo-store setup setup-dev test check format bench bench-pipeline bench-broker bench-client lock java node clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

run: setup ## set up and serve: a name server and a broker, until interrupted
	$(BIN)/flintmq serve --data $(DATA)

demo: setup-dev java ## the tour: a shop on a cluster, and everything Spark does with its data
	$(BIN)/python -m examples.tour --out .run/demo $(ARGS)

demo-store: setup ## show the store at work: write, read, recover, verify
	$(BIN)/python examples/store_demo.py

setup: $(VENV)/.core ## the virtual environment with the core, pinned

# pip compiles what it installs, but not what it leaves where it is: hence compileall.
$(VENV)/.core: pyproject.toml requirements/core.lock tools/make_venv.sh
	@PYTHON="$(PYTHON)" sh tools/make_venv.sh $(VENV)
	$(PIP) --require-hashes -r requirements/core.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

setup-dev: $(VENV)/.dev ## the same with everything that checks, tests and Spark need

$(VENV)/.dev: $(VENV)/.core requirements/dev.lock
	$(PIP) --require-hashes -r requirements/dev.lock
	@touch $@

java: ## Java 17 and Maven, for Spark and for the tests against the real broker
	@sh tools/ensure_java.sh

node: ## Node.js, for the tests with a client in JavaScript
	@sh tools/ensure_node.sh

test: setup-dev java node check ## everything: checks, then all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q

check: setup-dev ## format, lint, types, import contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup-dev ## put the sources into house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup-dev ## benchmarks, as a table and as bench/results.json
	$(BIN)/python -m bench.store --json bench/results.json

bench-pipeline: setup-dev java ## benchmarks of the pipeline on Spark; --messages in ARGS
	$(BIN)/python -m bench.pipeline --json bench/results-pipeline.json $(ARGS)

bench-broker: setup-dev ## benchmarks of the broker; ARGS="--java --load DIR" for the official one beside it
	$(BIN)/python -m bench.broker --json bench/results-broker.json $(ARGS)

bench-client: setup-dev ## benchmarks of the client, beside PyPI's rocketmq where that is installed
	$(BIN)/python -m bench.client --json bench/results-client.json $(ARGS)

lock: setup-dev ## pin the dependencies again
	$(PIP) uv
	$(COMPILE) pyproject.toml requirements/build.in -o requirements/core.lock
	$(COMPILE) pyproject.toml --extra dev --extra spark -o requirements/dev.lock

clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
