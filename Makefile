# Each target makes its own virtual environment in .venv and installs what it
# needs; stamps there make repeats quick.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(abspath $(VENV))/bin
STAMPS := $(VENV)/stamps
REPORTS := target/reports
# rustup installs here; a shell that is older than the installation does not know.
export PATH := $(PATH):$(HOME)/.cargo/bin
export VIRTUAL_ENV := $(abspath $(VENV))
export PIP_DISABLE_PIP_VERSION_CHECK := 1

RUST_FILES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name '*.toml' -o -name '*.wgsl')

.PHONY: help
help:
	@echo 'make demo    train a network on handwritten digits (writes to out/)'
	@echo 'make test    every test, Rust and Python, with the totals last'
	@echo 'make bench   benchmarks, and the same work in PyTorch and JAX where they are installed'
	@echo 'make build   the wheel, into dist/'
	@echo 'make lint    formatting, lints and types'
	@echo 'make clean   removes everything that was built'

.PHONY: demo
demo: $(STAMPS)/native $(STAMPS)/demo
	$(BIN)/python examples/digits.py

.PHONY: test
test: $(STAMPS)/native $(STAMPS)/dev
	@mkdir -p $(REPORTS) && rm -f $(REPORTS)/*
	@cargo test 2>&1 | tee $(REPORTS)/cargo.log || touch $(REPORTS)/failed
	@$(BIN)/python -m pytest --cov --cov-report=term --junitxml=$(REPORTS)/pytest.xml || touch $(REPORTS)/failed
	@$(BIN)/python tools/totals.py $(REPORTS)/cargo.log $(REPORTS)/pytest.xml $(REPORTS)/totals
	@test ! -e $(REPORTS)/failed

.PHONY: bench
bench: $(STAMPS)/native
	cargo bench
	$(BIN)/python benches/peers/compare.py

.PHONY: build
build: $(STAMPS)/maturin
	$(BIN)/maturin build --release --out dist

.PHONY: lint
lint: $(STAMPS)/native $(STAMPS)/dev
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest loom._native

.PHONY: clean
clean:
	rm -rf $(VENV) target dist out python/loom/_native*.so .coverage .pytest_cache .ruff_cache .mypy_cache

.PHONY: tools
tools:
	@tools/need.sh rust
	@PYTHON='$(PYTHON)' tools/need.sh python

$(STAMPS)/venv: | tools
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/maturin: $(STAMPS)/venv
	@$(BIN)/pip install --quiet 'maturin>=1.9.4,<2'
	@touch $@

# loom-nn is installed by then, so this adds what its extra of that name lists.
$(STAMPS)/demo $(STAMPS)/dev: $(STAMPS)/%: pyproject.toml | $(STAMPS)/native
	@$(BIN)/pip install --quiet 'loom-nn[$*]'
	@touch $@

$(STAMPS)/native: $(RUST_FILES) pyproject.toml README.md $(STAMPS)/maturin | tools
	@$(BIN)/maturin develop --release
	@touch $@
