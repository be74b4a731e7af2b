# Everything a fresh machine needs is set up from here: Python 3.11+ and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.lock
JOBS ?= 2

.PHONY: help run setup test check format bench lock java clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

run: setup ## set up and show the store at work: write, read, recover, verify
	$(BIN)/python examples/store_demo.py

setup: $(VENV)/.installed ## the virtual environment with everything pinned

$(VENV)/.installed: pyproject.toml $(LOCK) tools/make_venv.sh
	@PYTHON="$(PYTHON)" sh tools/make_venv.sh $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

java: ## Java 17 and Maven, for Spark and for the tests against the real broker
	@sh tools/ensure_java.sh

test: setup java check ## everything: checks, then all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q

check: setup ## format, lint, types, import contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup ## put the sources into house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## benchmarks, as a table and as bench/results.json
	$(BIN)/python -m bench.store --json bench/results.json

lock: setup ## pin the dependencies again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --upgrade -o $(LOCK)

clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
