# Each target prepares what it needs in .venv. Stamp files record finished work; their names hold a digest of the
# inputs, so a second run does nothing, and a new branch or edit redoes exactly the affected work:
#   .venv/stamps/<extra>-<digest>          packages, from pyproject.toml and constraints.txt
#   src/kinema/_native/.stamp-<digest>     native code, from setup.py, the generator, the kernels and the C++ files
#   build/.gallery-<digest>                pictures of docs/gallery.md, from docs/gallery.py and the renderer
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt

NATIVE_DIRS  := $(wildcard $(addprefix src/kinema/,lang math scene model kinematics dynamics contact integrate simulation rendering)) src/kinema/shipped.py
NATIVE_FILES := setup.py $(shell find $(NATIVE_DIRS) -name '*.py' -o -name '*.h' -o -name '*.hpp' -o -name '*.cpp' | LC_ALL=C sort)
digest        = $(shell (echo "$(1)"; sha256sum $(2)) | sha256sum | cut -c 1-16)
PACKAGES     := $(call digest,$(CURDIR),pyproject.toml constraints.txt)
SOURCES      := $(call digest,$$KINEMA_MARCH $$CXX,$(NATIVE_FILES))

with    = $(VENV)/stamps/$(1)-$(PACKAGES)
NATIVE := src/kinema/_native/.stamp-$(SOURCES)
GALLERY := build/.gallery-$(call digest,,docs/gallery.py $(shell find src/kinema/rendering -name '*.py' -o -name '*.cpp' | LC_ALL=C sort))

.PHONY: help setup setup-bench demo test slow bench docs lint format clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make demo         drop a soft block on a sphere, recover its stiffness by gradient"
	@echo "make test         lint, types and tests"
	@echo "make slow         the tests that 'make test' leaves out: long experiments, emulated aarch64, sanitizers"
	@echo "make bench        time the kernels beside their peers"
	@echo "make docs         build the documentation into site/"
	@echo "make lint         ruff and mypy only          make format   let ruff format the sources"
	@echo "make setup        prepare .venv for all targets except bench and docs"
	@echo "make setup-bench  add the peers of the benchmark to .venv"
	@echo "make clean        remove what was built (keeps .venv)"

setup: $(call with,plot) $(call with,test) $(NATIVE)

setup-bench: setup $(call with,bench)

demo: $(call with,plot) $(NATIVE)
	@$(BIN)/kinema demo

# Two processes share the test files; WORKERS=0 runs all tests in one, for a debugger.
WORKERS ?= 2
test: setup lint
	@echo "-- tests"
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

slow: setup
	@$(BIN)/python -m pytest -m slow

bench: setup-bench
	@$(BIN)/kinema bench kernels

docs: $(call with,plot) $(call with,docs) $(GALLERY)
	@echo "-- building the documentation into site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir site

lint: $(call with,plot) $(call with,test)
	@echo "-- ruff and mypy"
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check . || { echo "run: make format"; exit 1; }
	@$(BIN)/python -m mypy

format: $(call with,test)
	@$(BIN)/python -m ruff check --fix . && $(BIN)/python -m ruff format .

clean:
	rm -rf build out site src/kinema/_native src/kinema.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "-- creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Kinema needs Python 3.10 or newer; name one: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "Python's venv module is needed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# One set of packages: the extra `plot`, `test`, `bench` or `docs` and the dependencies of Kinema.
$(VENV)/stamps/%-$(PACKAGES): | $(BIN)/python
	@echo "-- installing packages: kinema[$*] (the first time fetches torch and takes some minutes)"
	@$(PIP) setuptools
	@KINEMA_SKIP_NATIVE=1 $(PIP) --no-build-isolation --editable '.[$*]'
	@mkdir -p $(@D) && rm -f $(@D)/$*-* && touch $@

$(NATIVE): | $(call with,plot)
	@echo "-- compiling the native code for this machine (at most 3 minutes on two cores)"
	@$(BIN)/python setup.py --quiet build_native --inplace
	@rm -f $(@D)/.stamp-* && touch $@

# The pictures of docs/gallery.md are in git; this target redraws them when their program or the renderer changes.
$(GALLERY): | $(NATIVE)
	@echo "-- drawing the gallery (about a minute)"
	@$(BIN)/python docs/gallery.py
	@mkdir -p $(@D) && rm -f $(@D)/.gallery-* && touch $@
