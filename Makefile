# make setup | run | test | check | bench [NAME=...]      (each of the others runs setup first)
PYTHON ?= python3
VENV := .venv
JARS := $(CURDIR)/.weir/jars
STAMPS := $(VENV)/.installed .weir/jars/kafka/.fetched .weir/jars/spark/.fetched $(VENV)/.compiled .weir/jars/.archived
PYTEST := $(VENV)/bin/python -m pytest

.PHONY: setup run test check bench
.DELETE_ON_ERROR:

setup: $(STAMPS)

# Stamps: a second run compares a few file times and does nothing.
$(VENV)/.installed: requirements.lock pyproject.toml
	@scripts/prerequisites.sh $(PYTHON) java mvn
	@echo "setup: creating $(VENV) (a few minutes the first time)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Numba keeps machine code on disk: compiled here, or the first job would spend half a minute on it.
$(VENV)/.compiled: $(VENV)/.installed $(shell find streaming/columns streaming/laws -name "*.py")
	@echo "setup: compiling the laws"
	@$(VENV)/bin/python -c "from streaming.job.operator import warm_up; warm_up()"
	@touch $@

.weir/jars/%/.fetched: conf/%/pom.xml
	@scripts/prerequisites.sh $(PYTHON) java mvn
	@mkdir -p $(JARS)
	@scripts/fetch-jars.sh $< $(JARS)/$*

# Kafka and the job start in half the time with it, and work as well without, so a failure stops nothing.
.weir/jars/.archived: .weir/jars/kafka/.fetched .weir/jars/spark/.fetched | $(VENV)/.compiled
	@echo "setup: archiving the classes of Kafka and Spark (half a minute)"
	@$(VENV)/bin/python -m weir.stack.archive || echo "setup: going on without archives; starts take twice as long"
	@touch $@

run: setup
	@$(VENV)/bin/weir demo

check: setup
	@echo "== lint" && $(VENV)/bin/ruff check .
	@echo "== types" && $(VENV)/bin/mypy
	@echo "== unit tests and traces" && $(PYTEST) tests/unit tests/traces

# From the quick to the slow; each line is one kind, stops at the first that fails.
test: check .weir/jars/pulsar/.fetched
	@echo "== the job in Spark" && $(PYTEST) tests/spark --durations=3
	@echo "== the proxy and the tools against a real Kafka" && $(PYTEST) tests/kafka --durations=3
	@echo "== the whole stack" && $(PYTEST) tests/end_to_end --durations=3

# All of them take 16 to 20 minutes; NAME=throughput (or any other, or several) runs less.
bench: setup
	@$(VENV)/bin/python -m benchmarks $(NAME)
