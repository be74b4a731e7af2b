# Everything a fresh machine needs is set up from here: Python 3.11+ and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# More than the two cores of most machines: tests wait for clocks, disks and other processes too.
JOBS ?= 4
DATA ?= .run/data
# Hashes, but no addresses: where packages come from is the machine's business.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --quiet --upgrade

.PHONY: help run demo demo-store setup setup-broker setup-test setup-dev test test-quick check format \
    bench bench-pipeline bench-broker bench-client bench-replication bench-turns bench-cold bench-waiting bench-scale bench-bad-peers bench-admin \
    soak soak-pairs soak-members docs \
    release-check lock java node clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'

run: setup-broker ## set up and serve: a name server and a broker, until interrupted
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

setup-broker: $(VENV)/.broker ## the same with machine code for a broker, compiled; without it where there is no numba

# A Python or a machine for which numba has no wheels gets a broker all the same; it says so itself.
$(VENV)/.broker: $(VENV)/.core requirements/fast.lock
	@if $(PIP) --only-binary :all: --require-hashes -r requirements/fast.lock; then \
	    echo "compiling machine code, once" && $(BIN)/python -m tools.compile_kernels; \
	else echo "no numba for this machine: the broker works without machine code, and slower"; fi
	@touch $@

setup-test: $(VENV)/.test ## the same with what unit and property tests need; no Spark, no Java

$(VENV)/.test: $(VENV)/.core requirements/test.lock
	$(PIP) --require-hashes -r requirements/test.lock
	@touch $@

setup-dev: $(VENV)/.dev ## the same with everything that checks, tests and Spark need

# The pins of test.lock are among those of dev.lock: whoever has these has the others.
$(VENV)/.dev: $(VENV)/.core requirements/dev.lock requirements/test.lock
	$(PIP) --require-hashes -r requirements/dev.lock
	@touch $(VENV)/.test $@

java: ## Java 17 and Maven, for Spark and for the tests against the real broker
	@sh tools/ensure_java.sh

node: ## Node.js, for the tests with a client in JavaScript
	@sh tools/ensure_node.sh

ifdef T
# One test, module or directory; most unit and property tests are content with the light environment.
LIGHT := $(filter tests/unit% tests/property%,$(firstword $(T)))

test: $(if $(LIGHT),setup-test,setup-dev java node)
	$(BIN)/python -m pytest $(if $(LIGHT),-p tools.light_tests) -q '$(T)' $(ARGS)
else
test: setup-dev java node ## everything: checks, then all tests; T=path::name for one test, without checks
	@$(BIN)/python -m tools.warm_up & warm=$$!; \
	    $(MAKE) --no-print-directory check; code=$$?; wait $$warm && exit $$code
	$(BIN)/python -m tools.whole_run -n $(JOBS) --dist loadgroup -q --durations=20
endif

test-quick: setup-test ## unit and property tests but the slow ones, without Spark, Java and Node
	$(BIN)/python -m pytest -p tools.light_tests -n $(JOBS) --dist loadgroup -m "not slow" -q \
	    tests/unit tests/property $(ARGS)

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

bench-broker: setup-dev ## benchmarks of the broker; ARGS="--java" for the official one beside it
	$(BIN)/python -m bench.broker --json bench/results-broker.json $(ARGS)

bench-replication: setup-dev java ## benchmarks of a master with its slave, beside the official pair
	$(BIN)/python -m bench.replication --java --json bench/results-replication.json $(ARGS)

bench-waiting: setup-dev ## messages that wait for the time they name, and the memory that takes
	$(BIN)/python -m bench.waiting $(ARGS)

bench-cold: setup-dev ## sends beside a consumer that reads what only the disk has
	$(BIN)/python -m bench.cold $(ARGS)

bench-turns: setup-dev ## how long others wait beside a client that asks for much
	$(BIN)/python -m bench.turns --json bench/results-turns.json $(ARGS)

bench-client: setup-dev ## benchmarks of the client, beside PyPI's rocketmq where that is installed
	$(BIN)/python -m bench.client --json bench/results-client.json $(ARGS)

bench-bad-peers: setup-dev ## how long a healthy client waits beside bad peers
	$(BIN)/python -m bench.bad_peers $(ARGS)

bench-scale: setup-dev ## how cost grows with topics, connections, sizes of bodies and logs, and brokers
	$(BIN)/python -m bench.scale --json bench/results-scale.json $(ARGS)

bench-admin: setup-dev ## how long flintmq admin takes to show its help and to answer
	$(BIN)/python -m bench.admin_start $(ARGS)

MINUTES ?= 5

ifdef SEEDS
soak: setup-dev
	$(BIN)/python -m soak.replication --seeds $(SEEDS) $(ARGS)
else
soak: setup-dev java ## servers under load and random faults for MINUTES=5, judged and drawn; SEEDS=100000 for simulated pairs
	$(BIN)/python -m soak --minutes $(MINUTES) --out .run/soak $(ARGS)
endif

soak-pairs: setup-dev java ## RUNS=20 pairs of master and slave under Java clients and random faults
	$(BIN)/python -m soak.replication --runs $(or $(RUNS),20) $(ARGS)

soak-members: setup-dev java ## members of groups, ours and Java's, killed, stopped and cut off for MINUTES=5 each
	FLINTMQ_CHURN_S=$$(( $(MINUTES) * 60 )) FLINTMQ_CHURN_SEED=$(or $(SEED),1) \
	    $(BIN)/python -m pytest -q -s tests/interop/test_member_churn.py $(ARGS)

docs: setup-dev ## the documentation site, in .run/docs; a link that leads nowhere is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs .run/docs

release-check: setup java ## wheels of all dependencies for all platforms; build, install with each extra elsewhere, try it
	$(BIN)/python -m tools.platform_wheels
	$(BIN)/python tools/release_check.py $(ARGS)

# The smaller ones take their pins from the largest, so that one environment can grow into another.
lock: setup ## pin the dependencies again
	$(PIP) uv
	$(COMPILE) pyproject.toml --extra dev --extra spark -o requirements/dev.lock
	$(COMPILE) pyproject.toml requirements/build.in -c requirements/dev.lock -o requirements/core.lock
	$(COMPILE) pyproject.toml --extra fast -c requirements/dev.lock -o requirements/fast.lock
	$(COMPILE) pyproject.toml --extra test -c requirements/dev.lock -o requirements/test.lock
	$(COMPILE) pyproject.toml --extra spark -c requirements/dev.lock -o requirements/spark.lock

clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
