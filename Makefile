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
# Tests start hundreds of processes that import loom, and each would compile its modules anew where the shell says so.
export PYTHONDONTWRITEBYTECODE :=
# Whatever pip installs below, maturin's calls of it included, so that no release of others breaks tests.
export PIP_CONSTRAINT := $(abspath constraints.txt)

# The unit tests stand in the library that everything else links: loom-nn is compiled once for all tests.
TESTED := --features loom-nn/unit-tests

RUST_FILES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name '*.toml' -o -name '*.wgsl')

.PHONY: help
help:
	@echo 'make demo    train a network on handwritten digits (writes to out/)'
	@echo 'make test    every test, Rust and Python, with the totals last'
	@echo 'make coverage  which lines of the Python package its tests run'
	@echo 'make soak    the long tests that make test leaves out'
	@echo 'make fuzz    every fuzz target in turn, for MINUTES in all (10)'
	@echo 'make model   the thread pool under a model checker'
	@echo 'make kernels that no instruction of a kernel has become a call, in a build of its own'
	@echo 'make sanitize   threads of the pool and of networks under sanitizers, with a nightly toolchain of Rust'
	@echo 'make aarch64 the engine of ARM machines, under an emulator (qemu-aarch64)'
	@echo 'make free-threaded   the tests of threads under a Python without a GIL, FREE_THREADED (python3.14t)'
	@echo 'make bench   benchmarks, and the same work in PyTorch and JAX where they are installed'
	@echo 'make build   the wheel, into dist/'
	@echo 'make docs    the documentation as a site, into target/site'
	@echo 'make gallery runs the programs of the gallery, and draws its pictures anew'
	@echo 'make lint    formatting, lints and types'
	@echo 'make clean   removes everything that was built'

.PHONY: demo
demo: $(if $(wildcard $(STAMPS)/release),$(STAMPS)/release,$(STAMPS)/quick) $(STAMPS)/demo
	$(BIN)/python examples/digits.py

# The tests of both languages side by side: each leaves a processor idle now and then. What NumPy and SciPy compute
# to compare with is small, and their threads would only wait for processors that other tests use.
.PHONY: test
test: $(STAMPS)/development $(STAMPS)/dev
	@mkdir -p $(REPORTS) && rm -f $(REPORTS)/*
	@{ OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --durations=40 \
	    --junitxml=$(REPORTS)/pytest.xml \
	    >$(REPORTS)/pytest.log 2>&1 || touch $(REPORTS)/failed; } & \
	{ { cargo test --workspace $(TESTED) --no-fail-fast --test '*' || touch $(REPORTS)/failed; \
	    cargo test --workspace $(TESTED) --doc; } 2>&1 | tee $(REPORTS)/cargo.log; } || touch $(REPORTS)/failed; \
	wait
	@cat $(REPORTS)/pytest.log
	@$(BIN)/python tools/totals.py $(REPORTS)/cargo.log $(REPORTS)/pytest.xml $(REPORTS)/totals
	@test ! -e $(REPORTS)/failed

# Counting lines takes time that `make test` need not spend.
.PHONY: coverage
coverage: $(STAMPS)/development $(STAMPS)/dev
	$(BIN)/python -m pytest -n auto --cov --cov-report=term

.PHONY: soak
soak: $(STAMPS)/release $(STAMPS)/dev model
	LOOM_SOAK=1 LOOM_RANDOM_NETWORKS=600 LOOM_MUTANTS=20000 PROPTEST_CASES=500 cargo test --release --workspace $(TESTED) -- --include-ignored
	cargo test --release -p loom-nn --no-default-features --features unit-tests
	LOOM_SOAK=1 LOOM_RANDOM_GRIDS=20 LOOM_EXTENTS=10000 $(BIN)/python -m pytest

MINUTES ?= 10

.PHONY: fuzz
fuzz:
	fuzz/run $(MINUTES)

.PHONY: model
model:
	cargo test --manifest-path rust/pool-model/Cargo.toml --target-dir target/pool-model -- --nocapture

.PHONY: kernels
kernels:
	CARGO_PROFILE_QUICK_STRIP=none cargo build --profile quick -p loom-python --lib --target-dir target/kernels
	$(PYTHON) tools/called_instructions.py target/kernels/quick/lib_native.so

.PHONY: sanitize
sanitize:
	tools/sanitize

.PHONY: aarch64
aarch64:
	tools/aarch64

FREE_THREADED ?= python3.14t
SECONDS_OF_RACES ?= 60

.PHONY: free-threaded
free-threaded:
	tools/free-threaded '$(FREE_THREADED)' $(SECONDS_OF_RACES)

.PHONY: bench
bench: $(STAMPS)/release
	cargo bench
	$(BIN)/python benches/peers/compare.py

.PHONY: build
build: $(STAMPS)/maturin
	env -u LOOM_KERNELS $(BIN)/maturin build --release --out dist

.PHONY: lint
lint: $(STAMPS)/development $(STAMPS)/dev $(STAMPS)/editors
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(BIN)/python tools/floors/rust.py
	$(BIN)/python tools/floors/python.py
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/python -m mypy.stubtest loom._native

.PHONY: docs
docs: $(STAMPS)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: gallery
gallery: $(STAMPS)/development $(STAMPS)/dev
	$(BIN)/python tools/docs/gallery.py

.PHONY: clean
clean:
	rm -rf $(VENV) target fuzz/target dist out python/loom/_native*.so .coverage .pytest_cache .ruff_cache .mypy_cache

.PHONY: tools
tools:
	@tools/need.sh rust
	@PYTHON='$(PYTHON)' tools/need.sh python

$(STAMPS)/venv: | tools
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/maturin: $(STAMPS)/venv constraints.txt
	@$(BIN)/pip install --quiet 'maturin>=1.12,<2'
	@touch $@

# Docstrings are read from the sources: nothing of loom is built for its site.
$(STAMPS)/docs: $(STAMPS)/venv constraints.txt
	@$(BIN)/pip install --quiet mkdocs-material 'mkdocstrings[python]' ruff
	@touch $@

# loom-nn is installed by then, so this adds what its extra of that name lists.
$(STAMPS)/demo: | $(if $(wildcard $(STAMPS)/release),$(STAMPS)/release,$(STAMPS)/quick)
$(STAMPS)/dev $(STAMPS)/editors: | $(STAMPS)/development
$(STAMPS)/demo $(STAMPS)/dev $(STAMPS)/editors: $(STAMPS)/%: pyproject.toml constraints.txt
	@$(BIN)/pip install --quiet 'loom-nn[$*]'
	@touch $@

# The native module is one file, from any of three profiles: as it is shipped; nearly as fast, but built in
# less than half the time, with kernels for this machine alone (LOOM_KERNELS, CONTRIBUTING.md); or as tests
# have it, with checks of overflow and of what kernels rely on, out of the same build of loom-nn as the tests
# in Rust.
$(STAMPS)/release $(STAMPS)/quick $(STAMPS)/development: $(RUST_FILES) pyproject.toml README.md $(STAMPS)/maturin | tools

$(STAMPS)/release:
	@$(BIN)/maturin develop --release
	@rm -f $(STAMPS)/quick $(STAMPS)/development && touch $@

$(STAMPS)/quick:
	@LOOM_KERNELS=$${LOOM_KERNELS:-host} $(BIN)/maturin develop --profile quick
	@rm -f $(STAMPS)/release $(STAMPS)/development && touch $@

$(STAMPS)/development:
	@cargo build --workspace $(TESTED) --lib --examples --test '*'
	@$(BIN)/maturin develop $(TESTED)
	@rm -f $(STAMPS)/release $(STAMPS)/quick && touch $@
