# make run and make test set everything up first; what is up to date is not done again.

SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check
# What to run of a ring, such as tests/mcp/test_http.py, with others of pytest's arguments.
T :=
# docker, podman or kubernetes: of test-engines and test-all what is about this one.
ENGINE :=
# A folder with programs that start and end a cluster for tests, as tests/engines/kubernetes.py says; KUBECONFIG goes first.
export SANDBOX_CLUSTER ?= $(wildcard ../shared/cluster)

.PHONY: run check test test-engines test-all tools engines lint bench clean

run: $(VENV)/installed
	@$(PYTHON) -m tests.demo

# What needs no sandbox: for use after each edit.
check: lint
	@$(PYTHON) -m tests.stage check -- $(T)

# What needs no engine. The two others add what does, and all that takes long; tests/README.md says what is in each.
test: $(VENV)/installed $(VENV)/toolchains
	@$(PYTHON) -m tests.stage sandbox -- $(T)

test-engines: engines
	@$(PYTHON) -m tests.stage engines --engine "$(ENGINE)" -- $(T)

test-all: tools
	@$(PYTHON) -m tests.engines up --every-language $(ENGINE)
	@SANDBOX_EFFORT=$${SANDBOX_EFFORT:-10} $(PYTHON) -m tests.stage all --engine "$(ENGINE)" --no-second-look -- $(T)

# All programs that tests run, without starting any.
tools: $(VENV)/installed $(VENV)/toolchains
	@$(PYTHON) -m tests.engines install

# Docker, Podman and Kubernetes of the tests' own, with images of all languages: minutes at first, then a second. They go
# on running for the next time, until `$(PYTHON) -m tests.engines down`.
engines: $(VENV)/installed
	@$(PYTHON) -m tests.engines up $(ENGINE)

lint: $(VENV)/installed
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

bench: $(VENV)/installed
	@set -e; for script in tests/benchmarks/[a-z]*.py; do \
	  name=$${script##*/}; $(PYTHON) -m tests.benchmarks.$${name%.py}; \
	done

clean:
	rm -rf $(VENV) out dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find llm_sandbox_mcp handlers tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/installed: pyproject.toml $(VENV)/bin/python
	$(PIP) uv
	@$(VENV)/bin/uv pip install --quiet --compile-bytecode --python $(PYTHON) --editable '.[dev]' \
	  || { echo "uv knows nothing of pip's settings; once more with pip" >&2; $(PIP) --editable '.[dev]'; }
	@touch $@

# The first interpreter that is new enough and has venv; where there is none, uv fetches one.
$(VENV)/bin/python: | $(VENV)/system
	@set -e; \
	for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python -m venv $(VENV)"; exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	if command -v uv >/dev/null; then exec uv venv --seed --allow-existing --python 3.12 $(VENV); fi; \
	echo "Python 3.11 or newer, with venv, is needed: install python3 and python3-venv, or uv" >&2; exit 1

# What sandboxes are made of and run. They see /usr only, so that is where the programs must be.
$(VENV)/system:
	@set -e; missing=; \
	command -v bwrap >/dev/null || missing="$$missing bubblewrap"; \
	command -v slirp4netns >/dev/null || missing="$$missing slirp4netns"; \
	command -v newuidmap >/dev/null || missing="$$missing uidmap"; \
	[ -x /usr/bin/python3 ] || missing="$$missing python3"; \
	python3 -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	[ -x /usr/bin/node ] || [ -x /usr/local/bin/node ] || missing="$$missing nodejs"; \
	[ -x /usr/bin/npm ] || [ -x /usr/local/bin/npm ] || missing="$$missing npm"; \
	mkdir -p $(VENV); \
	if [ -z "$$missing" ]; then \
	  touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "apt-get install$$missing"; \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$missing >/dev/null; \
	  touch $@; \
	else \
	  echo "missing on this machine; some things will not work until: sudo apt-get install$$missing" >&2; \
	fi

# Languages beside Python, JavaScript and Bash, as program:package. Each is installed by itself: one that cannot be had
# is reported, and its tests are skipped, while the others run.
TOOLCHAINS := g++:g++ javac:default-jdk-headless go:golang-go Rscript:r-base-core ruby:ruby

$(VENV)/toolchains: Makefile | $(VENV)/system
	@missing=; \
	for pair in $(TOOLCHAINS); do \
	  [ -x "/usr/bin/$${pair%%:*}" ] || [ -x "/usr/local/bin/$${pair%%:*}" ] || missing="$$missing $${pair#*:}"; \
	done; \
	for name in ggplot2 plotly; do \
	  [ -d "/usr/lib/R/site-library/$$name" ] || missing="$$missing r-cran-$$name"; \
	done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  wanted="$$missing"; missing=; \
	  apt-get update -qq || true; \
	  for package in $$wanted; do \
	    echo "apt-get install $$package"; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$package >/dev/null \
	      || missing="$$missing $$package"; \
	  done; \
	fi; \
	mkdir -p $(VENV); \
	if [ -z "$$missing" ]; then touch $@; else \
	  echo "missing on this machine; tests of their languages are skipped until: sudo apt-get install$$missing" >&2; \
	fi
