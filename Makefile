# Two commands, each sets up its own virtual environment first: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test slow check

demo: $(INSTALLED)  ## search SmolLM2-135M's heads; leaves mask, report and pictures in runs/demo
	$(BIN)/bosch search --model smollm2-135m --ratio 0.5 --window 64 --length 256,384,512 --examples 8 --output runs/demo

test: check  ## format, lint, types, and all tests that take seconds
	$(BIN)/pytest -n 2 -m "not slow and not real_model"

slow: $(INSTALLED)  ## the long tests and those on the real model
	$(BIN)/pytest -m "slow or real_model"

check: $(INSTALLED)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[dev]'
	touch $@
