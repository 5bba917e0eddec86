# The commands of this repository. Everything runs in .venv, made from nothing but Python.
PYTHON ?= python3.11 python3.12 python3.13 python3
SUPPORTED := 3.11, 3.12 or 3.13
WORKS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Another index to take PyTorch from: PyTorch's own index of CPU builds has none of CUDA's libraries.
TORCH_INDEX ?=
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: setup demo test fresh-test bench soak lint clean

setup: $(VENV)/.installed

$(BIN)/python:
	@for python in $(PYTHON); do \
		if $$python -c '$(WORKS)' 2>/dev/null; then \
			echo "Making $(VENV) with $$($$python --version) (supported: $(SUPPORTED))"; \
			exec $$python -m venv $(VENV); \
		fi; \
	done; \
	echo "openipu needs Python $(SUPPORTED) with its venv module. None of these is one: $(PYTHON)." \
		"Install one, or name it: make PYTHON=<path>" >&2; \
	exit 1

# What the demo shows: no PyTorch.
$(VENV)/.installed-demo: pyproject.toml src/openipu_hook.pth | $(BIN)/python
	@echo "Installing openipu with TensorFlow into $(VENV)"
	@$(INSTALL) -e '.[tensorflow]'
	@$(BIN)/python -m openipu.compiler.native
	@touch $@

$(VENV)/.installed: pyproject.toml src/openipu_hook.pth | $(BIN)/python
	@echo "Installing openipu with TensorFlow, PyTorch and the tools of its developers into $(VENV)"
	@$(INSTALL) -e '.[tensorflow,torch,report,dev]'
	@$(BIN)/python -m openipu.compiler.native
	@touch $(VENV)/.installed-demo $@

demo: $(VENV)/.installed-demo
	@$(BIN)/python -m openipu.demo

# Work is stolen, not dealt out by file: xdist's other way hangs for good after a worker has died.
test: setup lint
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# What CI does, in a new clone of what is committed, with an empty home and an empty environment.
fresh-test:
	@.ci/plain-pip .ci/fresh

# Random models and plans beside stock, interrupts and kills. MINUTES=5 for less; SEEDS="1 2" repeats what failed.
MINUTES ?= 60
SEEDS ?=
soak: setup
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --workers $(WORKERS) $(addprefix --seed ,$(SEEDS))

bench: setup
	@$(BIN)/python -m benchmarks

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
