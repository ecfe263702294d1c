# `make demo` runs the main job, `make test` the tests, `make test-long` those that take minutes each.
# All make the environment in .venv first.

PYTHON ?= python3.11
ifeq ($(shell command -v $(PYTHON) 2>/dev/null),)
PYTHON := python3
endif
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEED ?= 1
# A run of the tests starts hundreds of processes that import the same modules. Without compiled ones
# each loses half a second, so they are written though the variable asks for the contrary.
unexport PYTHONDONTWRITEBYTECODE
# Unit tests before formal, cosim and system: what finds the worst bugs fastest comes first.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-long lint docs clean

demo: $(STAMP)
	$(BIN)/dxpu demo --seed $(SEED)

test: $(STAMP) lint
	DXPU_SEED=$(SEED) $(PYTEST) -m "not long" tests

# What passed before with the same sources, seed and tools is not run again, but with AGAIN=1.
test-long: $(STAMP) lint
	DXPU_SEED=$(SEED) $(PYTEST) -m long $(if $(AGAIN),--again) tests

# The pages that are made from descriptions (registers, configuration spaces, ports) in build/docs,
# and the site with these and those of docs/ in build/site/html.
docs: $(STAMP)
	$(BIN)/dxpu docs
	$(BIN)/python docs/make_site.py

lint: $(STAMP)
	$(BIN)/ruff check --quiet hdl model sim host boards manager cli examples tests docs
	$(BIN)/mypy --no-error-summary

clean:
	rm -rf build $(VENV)

# --no-build-isolation: hatchling comes from the same pinned set as everything else.
$(STAMP): pyproject.toml requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON); install CPython 3.11"; exit 1; }
	@command -v g++ >/dev/null || { echo "error: no g++; Verilator needs a C++ compiler"; exit 1; }
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation -e .
	@touch $@
