# Everything Capsule needs is installed into .venv by the targets themselves: git, make and Python >= 3.11 suffice.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3
PYTEST = $(BIN)/pytest -n $(JOBS) --dist worksteal
LIVE := tests/live tests/attacks tests/projects
# In CI, a handful of failed tests are asked once more, alone: docs/decisions/0028.
ONCE_MORE := $(if $(CI),|| tools/once-more $(BIN)/pytest)
export PYTHONDONTWRITEBYTECODE =

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: $(VENV)/.ready ## two tasks through the whole pipeline, with a scripted agent
	@$(BIN)/capsule demo

test: JOBS = 4
test: $(VENV)/.warm ## the tests a contributor runs, in two minutes (git, make and Python suffice)
	$(PYTEST) -m "not slow and not sandboxed" $(LIVE:%=--ignore=%) tests $(ONCE_MORE)

check: format lint types contracts $(VENV)/.warm ## everything that must be green: format, lint, types, contracts, all tests but those of `make tables`
	$(PYTEST) -m "not soak" $(LIVE:%=--ignore=%) tests $(ONCE_MORE)

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

# Where bubblewrap is on the PATH already, `make check` has run the tests that want it.
live: JOBS = 2
live: $(VENV)/.dev ## the real agent CLIs on a scripted model, the real bd, a browser; attacks, and all that wants bubblewrap
	@found="$$(command -v bwrap)"; path="$$(tools/live $(BIN)/python)" || exit 1; \
	    export PATH="$${path:+$$path:}$$PATH" CAPSULE_LIVE=1; \
	    { $(PYTEST) -rs -m "not soak" $(LIVE) $(ONCE_MORE); } && \
	    { test -n "$$found" || { $(PYTEST) -rs -m "sandboxed and not soak" $(LIVE:%=--ignore=%) tests $(ONCE_MORE); }; }

soak: crash bench lies tables ## what takes longer than a day's work allows: every kill, benchmark, lie, and case of a table

tables: JOBS = 2
tables: $(VENV)/.dev ## the cases of large tables that `make check` and `make live` leave out
	@path="$$(tools/live $(BIN)/python)" || exit 1; export PATH="$${path:+$$path:}$$PATH" CAPSULE_LIVE=1; \
	    $(PYTEST) -rs -m soak tests

lies: JOBS = 2
lies: $(VENV)/.dev ## play every lie and honest mission (ONLY=family or name, SANDBOX=required), and print a table
	@$(BIN)/python -m tests.lies --jobs $(JOBS) --only "$(ONLY)" --sandbox $(or $(SANDBOX),off)

crash: $(VENV)/.dev ## kill a mission at every point there is (long), and resume it
	CAPSULE_CRASH_ALL=1 $(PYTEST) tests/crash tests/system/test_kills.py

bench: $(VENV)/.dev ## every benchmark, as ratios measured in one run
	@set -e; for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b; done

reference: $(VENV)/.dev ## write docs/reference from the code, and SPEC.md from the tests
	$(BIN)/python tools/reference
	$(BIN)/python tools/spec

pictures: $(VENV)/.dev ## draw docs/pictures from a real run of the demo
	$(BIN)/python tools/pictures

docs: $(VENV)-docs/.ready ## the documents as a site, in build/site/html; broken links end it
	@$(VENV)-docs/bin/python tools/site

$(VENV)-docs/.ready: requirements-docs.txt
	@$(PYTHON) -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

$(VENV)/.ready: pyproject.toml requirements.txt
	@tools/install $(PYTHON) $(VENV) requirements.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.ready requirements-dev.txt
	@tools/install $(PYTHON) $(VENV) requirements-dev.txt
	@touch $@

# All workers would compile all tests at the same time; so each folder is compiled by one process, once.
$(VENV)/.warm: $(VENV)/.dev
	@printf '%s\n' $(filter-out $(LIVE) %.py %.toml %/__pycache__,$(wildcard tests/*)) | \
	    xargs -P 2 -n 3 $(BIN)/pytest --collect-only -qq > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }
	@touch $@

clean: ## remove what the other targets made
	rm -rf $(VENV) $(VENV)-docs build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist

.PHONY: help demo test check format lint types contracts fix live soak tables crash lies bench reference pictures docs clean
