PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test test-all lint bench bench-gpu bench-peers clean

run: $(READY)
	$(BIN)/fnbandit run

test: lint
	$(BIN)/python -m pytest -m "not long"

test-all: lint
	$(BIN)/python -m pytest

bench: $(READY)
	$(BIN)/python -m workflows.benchmarks

bench-gpu: $(READY)
	$(BIN)/python -m workflows.benchmarks --gpu

bench-peers: $(READY)
	$(BIN)/python -m workflows.benchmarks.peers

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	touch $(READY)

clean:
	rm -rf $(VENV) .peers .mypy_cache .pytest_cache .ruff_cache .hypothesis
