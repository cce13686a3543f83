# make run and make test set everything up first; steps that are up to date are skipped.

SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check
# Selects tests of a ring, such as tests/mcp/test_http.py; other arguments of pytest are possible too.
T :=
# docker, podman or kubernetes: test-engines and test-all run only the tests about this engine.
ENGINE :=
# A folder with programs that start and end a cluster for tests, see tests/engines/kubernetes.py; KUBECONFIG has priority.
export SANDBOX_CLUSTER ?= $(wildcard ../shared/cluster)

.PHONY: run check test test-engines test-all tools engines lint bench docs dist clean

run: $(VENV)/installed
	@$(PYTHON) -m tests.demo

# Checks that need no sandbox: run this after each edit.
check: lint
	@SANDBOX_EFFORT=$${SANDBOX_EFFORT:-0.1} $(PYTHON) -m tests.stage check -- $(T)

# Tests that need no engine. The next two targets add tests with engines, and slow tests; see tests/README.md.
test: $(VENV)/installed $(VENV)/toolchains
	@$(PYTHON) -m tests.stage sandbox -- $(T)

test-engines: engines
	@$(PYTHON) -m tests.stage engines --engine "$(ENGINE)" -- $(T)

test-all: tools
	@$(PYTHON) -m tests.engines up --every-language $(ENGINE)
	@SANDBOX_EFFORT=$${SANDBOX_EFFORT:-10} $(PYTHON) -m tests.stage all --engine "$(ENGINE)" --no-second-look -- $(T)

# Installs all programs that tests use, without starting any.
tools: $(VENV)/installed $(VENV)/toolchains
	@$(PYTHON) -m tests.engines install

# Separate Docker, Podman and Kubernetes engines for tests, with images of all languages: this takes minutes the first time,
# then a second. They keep running for the next time, until `$(PYTHON) -m tests.engines down`.
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

# The site, made from the documents, the profile, the parser, the server and docstrings: dist/site/index.html.
docs: $(VENV)/installed
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict -f docs/mkdocs.yml
	@echo dist/site/index.html

# What is published, in dist/; see configs/publish/README.md. IMAGE_OPTIONS are options of `docker build`.
dist: $(VENV)/installed
	@$(PYTHON) configs/publish/build.py --image-options "$(IMAGE_OPTIONS)"

clean:
	rm -rf $(VENV) out dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find llm_sandbox_mcp handlers tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/installed: pyproject.toml $(VENV)/bin/python
	$(PIP) uv
	@$(VENV)/bin/uv pip install --quiet --compile-bytecode --python $(PYTHON) --editable '.[dev]' \
	  || { echo "uv does not read pip's settings; trying again with pip" >&2; $(PIP) --editable '.[dev]'; }
	@touch $@

# Uses the first interpreter that is new enough and has venv; if there is none, uv downloads one.
$(VENV)/bin/python: | $(VENV)/system
	@set -e; \
	for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python -m venv $(VENV)"; exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	if command -v uv >/dev/null; then exec uv venv --seed --allow-existing --python 3.12 $(VENV); fi; \
	echo "Python 3.11 or newer with venv is missing; install python3 and python3-venv, or uv" >&2; exit 1

# The programs that make sandboxes, and that run in them. Sandboxes see only /usr, so the programs must be there.
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
	  echo "some programs are missing on this machine; run: sudo apt-get install$$missing" >&2; \
	fi

# Languages other than Python, JavaScript and Bash, as program:package. Each is installed separately: one that is not
# available is reported, and its tests are skipped, while the others run.
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
	  echo "some languages are missing on this machine, their tests are skipped; run: sudo apt-get install$$missing" >&2; \
	fi
