# Everything Capsule needs is installed into .venv by the targets themselves: git, make and Python >= 3.11 suffice.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 4
# In CI, a handful of failed tests are asked once more, alone: docs/decisions/0028.
ONCE_MORE := $(if $(CI),|| tools/once-more $(BIN)/pytest)
export PYTHONDONTWRITEBYTECODE =

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: $(VENV)/.ready ## two tasks through the whole pipeline, with a scripted agent
	@$(BIN)/capsule demo

test: $(VENV)/.dev ## the tests a contributor runs (git, make and Python suffice)
	$(BIN)/pytest -n $(JOBS) --dist worksteal --ignore=tests/attacks --ignore=tests/projects tests $(ONCE_MORE)

check: format lint types contracts test ## everything that must be green

format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

fix: $(VENV)/.dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

live: $(VENV)/.dev ## the real agent CLIs on a scripted model, the real bd, a browser; attacks, and all that wants bubblewrap
	@path="$$(tools/live $(BIN)/python)" && export PATH="$${path:+$$path:}$$PATH" CAPSULE_LIVE=1 && \
	    { $(BIN)/pytest -n 2 --dist worksteal -rs tests/live tests/attacks tests/projects $(ONCE_MORE); } && \
	    { $(BIN)/pytest -n 2 --dist worksteal -rs -m sandboxed --ignore=tests/live --ignore=tests/attacks --ignore=tests/projects tests $(ONCE_MORE); }

crash: $(VENV)/.dev ## kill a mission at every point there is (long), and resume it
	CAPSULE_CRASH_ALL=1 $(BIN)/pytest -n $(JOBS) tests/crash tests/system/test_kills.py

bench: $(VENV)/.dev ## every benchmark, as ratios measured in one run
	@set -e; for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b; done

reference: $(VENV)/.dev ## write docs/reference from the code, and SPEC.md from the tests
	$(BIN)/python tools/reference
	$(BIN)/python tools/spec

pictures: $(VENV)/.dev ## draw docs/pictures from a real run of the demo
	$(BIN)/python tools/pictures

$(VENV)/.ready: pyproject.toml requirements.txt
	@tools/install $(PYTHON) $(VENV) requirements.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.ready requirements-dev.txt
	@tools/install $(PYTHON) $(VENV) requirements-dev.txt
	@touch $@

clean: ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist

.PHONY: help demo test check format lint types contracts fix live crash bench reference pictures clean
