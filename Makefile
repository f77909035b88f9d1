# Two commands: `make demo` and `make test`. Both set up .venv from the package index by themselves.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo install test test-slow check format bench clean

demo: .venv/.core
	$(BIN)/coterie demo

install: .venv/.all

test: .venv/.all
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 12

# Accuracy on real data, real federations under many faults, the audit's gates.
test-slow: .venv/.all
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow --durations 20

check: .venv/.all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: .venv/.all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.all
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv dist build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coterie needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --editable .
	@touch $@

.venv/.all: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --editable '.[all]'
	@touch $@ .venv/.core
