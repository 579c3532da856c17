# Two commands a newcomer needs: `make demo` and `make test`. Both make the environment they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA_DIR ?= .data
TEST_PROCESSES ?= 3

.PHONY: demo test check lock openapi examples schema bench clean

demo: $(VENV)/.installed
	@exec $(BIN)/fabric-manager demo --data-dir $(DATA_DIR)

test: check
	$(BIN)/pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed: requirements.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/pip install --quiet --require-hashes --requirement requirements-dev.txt
	@touch $@

# Rewrites the hashed requirements; needs uv on PATH.
lock:
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-emit-index-url --group build pyproject.toml --output-file requirements.txt
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-emit-index-url --group dev pyproject.toml --output-file requirements-dev.txt

openapi: $(VENV)/.installed-dev
	$(BIN)/fabric-manager openapi > openapi/fabric-manager.yaml

# Plays every documented request against a real service and keeps its answers as the documented ones.
examples: $(VENV)/.installed-dev
	$(BIN)/python -m tests.documented
	$(BIN)/fabric-manager openapi > openapi/fabric-manager.yaml

schema: $(VENV)/.installed-dev
	$(BIN)/python -m tests.store.schema > migrations/schema.sql

clean:
	rm -rf $(VENV) $(DATA_DIR)

bench: $(VENV)/.installed-dev
	$(BIN)/python bench/claims.py
