# The commands of this repository. Everything runs in .venv, made from nothing but Python 3.11.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: setup demo test bench lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml src/openipu_hook.pth
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing openipu and what it needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -e '.[tensorflow,torch,report,dev]'
	@touch $(STAMP)

demo: setup
	@$(BIN)/python -m openipu.demo

test: setup lint
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

bench: setup
	@$(BIN)/python -m benchmarks

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
