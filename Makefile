# make setup | run | pulsar | check | test | secure | soak [MINUTES=60] [SEED=n] | suites [NAME=...] [WAY=tls]
#    | matrix [NAME=...] | bench [NAME=...] | image | sbom | release | compose-test
#    | kube-test | upgrade-test [OLD=ref]
# (all but setup and image run setup first, test beside what needs less)
# pulsar: what weir pulsar and weir up --pulsar local need (they fetch it themselves too), 231 MB, about a minute.
# s3a: what checkpoints on s3a:// need, 10 MB. minio: an S3 store for tests of that, kube: an API server of Kubernetes,
# each built in a quarter of an hour.
# check: lint, types and unit tests, some four minutes. test: that and the rest on real parts, ten; what a change
# has to pass. soak: what takes longer and breaks seldom, before a release; last MINUTES of kills. suites: clients' own
# tests through the proxy, before a release too, as matrix: all laws before other brokers, by more clients. bench: how
# fast it is.
# sbom: what Weir is made of (CycloneDX), build/sbom.json. release: what users get of a tagged version, build/release.
# upgrade-test: the last release beside this one (soak has it too): its newest tag, or OLD.
# secure: the quick tests of test that are about security, testssl.sh, and all laws felt by clients in C, Python, Java and Go.
PYTHON ?= python3
VENV := .venv
JARS := $(CURDIR)/.weir/jars
FETCHED := .weir/jars/kafka/.fetched .weir/jars/spark/.fetched
STAMPS := $(VENV)/.installed $(FETCHED) $(VENV)/.compiled .weir/jars/.archived
PULSAR_JARS := .weir/jars/pulsar/.fetched .weir/jars/pulsar_broker/.fetched
STREAMS_JARS := .weir/jars/streams43/.fetched
TESTS_JARS := $(patsubst %,.weir/jars/%/.fetched,hdfs kafka39 kafka41 streams43)
MATRIX_JARS := $(patsubst %,.weir/jars/%/.fetched,clients28 kafka39 kafka40 kafka41 kafka44)
AXE := .weir/tools/axe/.fetched
PYTEST := $(VENV)/bin/python -m pytest
# What is imported is compiled then, and that is a part of it: compiling all takes as long as unpacking it.
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
# A commit of MinIO, 2026-02-12.
MINIO := v0.0.0-20260212201848-7aac2a2c5b7c
KUBE := v1.34.1
MINUTES ?= 60
# A file is one worker's; which one is begun when says tests/conftest.py.
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder
SECURE := secure attack kafka/test_tls.py kafka/test_sasl.py kafka/test_doors.py kafka/test_certificate_users.py pulsar/test_doors.py unit/enforcer/host unit/enforcer/control unit/enforcer/kafka/guard unit/test_jars.py unit/test_sbom.py unit/test_rows_have_tests.py

# Where it is set, as in some containers, every start of Python compiles all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Where it is set, pytest ends with all of what differed, and a log of bounded length then lacks the test's name.
unexport CI

.PHONY: setup run pulsar s3a minio lint types units check test secure soak suites matrix bench image sbom release upgrade-test compose-test kube kube-test
.DELETE_ON_ERROR:

# Python's libraries and Kafka's jars come from two places, so they come at a time.
setup:
	@$(MAKE) -s -j4 $(STAMPS)

# Stamps: a second run compares a few file times and does nothing.
$(VENV)/.installed: $(VENV)/.libraries-a $(VENV)/.libraries-n $(VENV)/.pyspark pyproject.toml
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/bin/python:
	@scripts/prerequisites.sh $(PYTHON) java mvn
	@echo "setup: creating $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)

# One pip keeps one processor: the lock, which holds all that is needed, in two parts. PySpark has no wheel, and building
# one takes nearly as long as all else: beside them, and not compressed on its way.
$(VENV)/.libraries-a: OWN := /^[a-m]/
$(VENV)/.libraries-n: OWN := /^[n-z]/
$(VENV)/.libraries-a $(VENV)/.libraries-n: requirements.lock | $(VENV)/bin/python
	@awk '/^[^ #]/ { on = $(OWN) && !/^pyspark==/ } on' $< > $@.lock && $(PIP) --no-deps --require-hashes -r $@.lock
	@touch $@

$(VENV)/.pyspark: requirements.lock | $(VENV)/bin/python
	@awk '/^[^ #]/ { on = /^pyspark==/ } on' $< > $@.lock
	@printf '[bdist_wheel]\ncompression = stored\n' > $@.cfg
	@DIST_EXTRA_CONFIG=$(abspath $@.cfg) $(PIP) --no-deps --require-hashes -r $@.lock
	@touch $@

# Numba keeps machine code on disk: compiled here, or the first job would spend half a minute on it.
$(VENV)/.compiled: $(VENV)/.installed $(shell find streaming/columns streaming/laws -name "*.py")
	@echo "setup: compiling the laws"
	@$(VENV)/bin/python -c "from streaming.job.operator import warm_up; warm_up()"
	@touch $@

# Maven's store takes one at a time.
.weir/jars/spark/.fetched: | .weir/jars/kafka/.fetched

# The stamp is the list's sum; touched where the jars were right already.
.weir/jars/%/.fetched: weir/jars/poms/%/pom.xml weir/jars/poms/%/jars.sha256
	@scripts/prerequisites.sh $(PYTHON) java mvn
	@mkdir -p $(JARS)
	@$(PYTHON) -m weir.jars fetch weir/jars/poms/$* $(JARS)/$*
	@touch $@

# For checkpoints on s3a://, 10 MB.
s3a: setup .weir/jars/spark_s3a/.fetched

# Only tests need these: a namenode and a datanode, other brokers and clients, Kafka Streams, and an S3 store, built in a
# quarter of an hour.
$(sort $(TESTS_JARS) $(MATRIX_JARS)): .weir/jars/%/.fetched: tests/poms/%/pom.xml tests/poms/%/jars.sha256
	@mkdir -p $(JARS)
	@$(PYTHON) -m weir.jars fetch tests/poms/$* $(JARS)/$*
	@touch $@

# What looks at the console's pages in tests, by its lock.
$(AXE): tests/browser/pins/package-lock.json
	@scripts/prerequisites.sh $(PYTHON) npm chromium
	@mkdir -p $(@D) && cp tests/browser/pins/package*.json $(@D)
	@cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

minio: .weir/tools/minio
.weir/tools/minio:
	@scripts/prerequisites.sh $(PYTHON) go
	@echo "minio: building $(MINIO) (a quarter of an hour)"
	@GOBIN=$(CURDIR)/.weir/tools go install -trimpath -ldflags "-s -w" github.com/minio/minio@$(MINIO)

kube: .weir/tools/kube/.built
.weir/tools/kube/.built: scripts/kube.sh
	@scripts/prerequisites.sh $(PYTHON) go
	@echo "kube: building Kubernetes $(KUBE) (a quarter of an hour)"
	@scripts/kube.sh $(KUBE) $(@D)
	@touch $@

# Kafka and the job start in half the time with it, and work as well without, so a failure stops nothing.
.weir/jars/.archived: $(FETCHED) | $(VENV)/.compiled
	@echo "setup: archiving the classes of Kafka and Spark (half a minute)"
	@$(VENV)/bin/python -m weir.stack.archive || echo "setup: going on without archives; starts take twice as long"
	@touch $@

# Only for who runs a local Pulsar: with it that starts a third sooner, and works as well without.
.weir/jars/pulsar_broker/.archived: .weir/jars/pulsar_broker/.fetched | $(VENV)/.compiled
	@$(VENV)/bin/python -c "from weir.stack.pulsar import prepare; prepare(lambda said: print('setup:', said, flush=True))"
	@touch $@

pulsar: setup .weir/jars/pulsar_broker/.archived

run: setup
	@$(VENV)/bin/weir demo

lint: $(VENV)/.installed
	@echo "== lint" && $(VENV)/bin/ruff check .

types: lint
	@echo "== types" && $(VENV)/bin/mypy

UNITS := $(PYTEST) tests/unit tests/traces -m "not soak" -n 2
UNITS_SAY := == unit tests and traces
units: types $(VENV)/.compiled $(FETCHED)
	@echo "$(UNITS_SAY)" && $(UNITS)

check: setup
	@$(MAKE) -s units

# From the quick to the slow, one kind at a time, since brokers miss their times side by side with others. Of the
# processors that they leave idle unit tests take the time; jars, archives and axe come meanwhile.
test:
	@$(MAKE) -s -j4 whole-stack units-beside

.PHONY: units-beside on-spark real-kafka real-pulsar console whole-stack tests-jars
tests-jars: .weir/jars/spark/.fetched
	@for made in $(PULSAR_JARS) $(STREAMS_JARS) $(AXE); do $(MAKE) -s $$made || exit; done

units-beside: types $(VENV)/.compiled $(FETCHED)
	@scripts/idle.sh $(UNITS) > .weir/units.log 2>&1; ended=$$?; echo "$(UNITS_SAY)" && cat .weir/units.log && exit $$ended

on-spark: lint $(FETCHED) $(VENV)/.compiled
	@echo "== the job in Spark" && $(PYTEST) tests/spark -m "not soak" -n 2 $(SIDE_BY_SIDE) --durations=3

real-kafka: on-spark tests-jars $(STAMPS)
	@echo "== the proxy and the tools against a real Kafka" && \
		$(PYTEST) tests/kafka tests/attack -m "not soak" -n 2 $(SIDE_BY_SIDE) --durations=3

real-pulsar: real-kafka
	@echo "== Pulsar" && $(PYTEST) tests/pulsar -m "not soak" -n 2 $(SIDE_BY_SIDE) --durations=3

console: real-pulsar
	@scripts/prerequisites.sh $(PYTHON) chromium
	@echo "== the console in a browser" && $(PYTEST) tests/browser -m "not soak" --durations=3

whole-stack: console
	@echo "== the whole stack" && $(PYTEST) tests/end_to_end -m "not soak" -n 2 $(SIDE_BY_SIDE) --durations=3

secure: setup $(PULSAR_JARS)
	@scripts/prerequisites.sh $(PYTHON) testssl go
	@$(PYTEST) $(SECURE:%=tests/%) -m "not soak" -n 2 $(SIDE_BY_SIDE) --durations=3

# Nothing side by side with what measures. Needs Debian's package prometheus, with promtool; go for an S3
# store and for Kubernetes, half an hour the first time; and root, for a second host.
soak: setup s3a $(PULSAR_JARS) $(AXE) .weir/jars/pulsar_tools/.fetched $(TESTS_JARS) minio kube
	@scripts/prerequisites.sh $(PYTHON) prometheus promtool chromium
	@echo "== unit tests with thorough properties" && \
		$(PYTEST) tests/unit tests/traces -n 2 --hypothesis-profile thorough --durations=3
	@echo "== outages, half-minute measurements, the benchmarks' short form" && \
		$(PYTEST) tests/spark tests/kafka tests/attack tests/pulsar tests/browser tests/end_to_end tests/kube tests/secure/test_kroxylicious.py \
			-m soak --durations=3
	@echo "== $(MINUTES) minutes of kills (docs/reliability.md)" && \
		$(VENV)/bin/python tests/soak --minutes $(MINUTES) $(SEED:%=--seed %)

# Other people's tests of their clients, fetched from registries; needs go, npm, gcc and headers of zlib and OpenSSL.
# WAY=tls: over TLS with logins.
suites: setup
	@scripts/prerequisites.sh $(PYTHON) go npm g++
	@$(VENV)/bin/python tests/suites $(WAY:%=--way %) $(NAME)

# Laws, clients and servers (docs/compatibility.md, which it writes), a quarter of an hour. NAME=4.3: only before that one.
matrix: setup $(PULSAR_JARS) $(MATRIX_JARS)
	@scripts/prerequisites.sh $(PYTHON) go npm
	@$(VENV)/bin/python tests/matrix $(NAME)

# Images of all parts; ENGINE=podman, BASE=image, TAG=tag and BUILD_ARGS are taken from the environment or from here.
image:
	@compose/build.sh

sbom: setup
	@PYTHONPATH=$(CURDIR) $(VENV)/bin/python scripts/sbom.py build/sbom.json

upgrade-test: setup
	@WEIR_OLD=$(OLD) $(PYTEST) tests/end_to_end/test_upgrade.py

# From a clean commit with the tag vVERSION; its images too where ENGINE answers.
release: setup
	@$(VENV)/bin/python scripts/release.py

# The images and the stack of compose/ for real, with whatever engine is there (see image); up to a quarter of an hour.
compose-test: setup
	@$(VENV)/bin/python tests/compose

# compose/k8s before an API server.
kube-test: setup kube
	@$(PYTEST) tests/kube -m soak

export ENGINE BASE TAG BUILD_ARGS

# All of them take forty minutes; NAME=throughput (or any other, or several) runs less.
bench: setup
	@$(VENV)/bin/python -m benchmarks $(NAME)
