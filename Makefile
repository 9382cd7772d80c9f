PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
DEV := .venv/.dev

.PHONY: train test test-all lint docs bench clean

train: $(CORE)  ## Train a WideResNet on two replicas, on any machine.
	$(BIN)/kdist train --dataset sample --no-augment --replicas 2 --depth 10 --width 1 \
		--batch-size 32 --val-batch-size 125 --base-lr 0.05 --momentum 0.9 --schedule cosine \
		--warmup-epochs 0.5 --epochs 4 --target-accuracy 0.85 --patience 1

test: $(DEV)  ## Run the tests that are not slow.
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(DEV)  ## Run every test.
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(DEV)  ## Format, lint, type and import checks.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p kdist
	$(BIN)/lint-imports --no-logo

docs: $(DEV)  ## Build the documentation into site/, warnings as errors.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(DEV)  ## Compare with stock Keras, and with PyTorch if it is installed: ten minutes.
	$(BIN)/python -m benchmarks.speed

clean:
	rm -rf .venv build runs site *.egg-info

$(CORE): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --editable .
	touch $@

$(DEV): $(CORE)
	$(BIN)/pip install --editable '.[dev]'
	touch $@
