# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
comma := ,
# What the tests install; EXTRAS=dev,test-models adds torch and transformers for the models exported from them.
EXTRAS ?= dev
SOURCES := pyproject.toml setup.py $(wildcard csrc/*/*.c csrc/*/*.h)

.PHONY: demo test test-quick test-slow nightly lint bench clean help

help:
	@echo "make demo   install, compile ResNet-50 and compare it with onnxruntime"
	@echo "make test   install what is missing and pass all tests"
	@echo "make test-quick   a minute of tests, from every folder"
	@echo "make nightly MINUTES=60   random tests with fresh seeds, again and again"
	@echo "make lint   ruff and mypy --strict"
	@echo "make bench  every benchmark (quiet machine, several minutes)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip setuptools wheel

# The runtime is enough to run; the demo adds the peer; the tests add everything.
$(STAMP)-demo: $(BIN)/python $(SOURCES)
	$(BIN)/pip install -q -e '.[onnx,bench]'
	touch $@

$(STAMP)-test-$(subst $(comma),+,$(EXTRAS)): $(BIN)/python $(SOURCES)
	$(BIN)/pip install -q -e '.[$(EXTRAS)]'
	touch $@

demo: $(STAMP)-demo
	$(BIN)/python examples/demo.py

test: $(STAMP)-test-$(subst $(comma),+,$(EXTRAS))
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-quick: $(STAMP)-test-$(subst $(comma),+,$(EXTRAS))
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --quick

test-slow: $(STAMP)-test-$(subst $(comma),+,$(EXTRAS))
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --slow

# What fails is written to nightly-failures.txt, as commands that repeat it.
MINUTES ?= 60
nightly: $(STAMP)-test-$(subst $(comma),+,$(EXTRAS))
	$(BIN)/python tests/nightly.py --minutes $(MINUTES)

lint: $(STAMP)-test-$(subst $(comma),+,$(EXTRAS))
	$(BIN)/ruff check weft tests benchmarks examples
	$(BIN)/ruff format --check weft tests benchmarks examples
	$(BIN)/mypy

bench: $(STAMP)-test-$(subst $(comma),+,$(EXTRAS))
	$(BIN)/python -m benchmarks

clean:
	rm -rf build dist *.egg-info weft/runtime/_native*.so
