# Two commands for newcomers (demo, test), one gate for contributors (check).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test check format clean

demo: $(STAMP)          ## install into .venv, then run the embedded demo
	$(BIN)/langgoalirl demo

test: $(STAMP)          ## install into .venv, then run the tests
	$(BIN)/python -m pytest

check: $(STAMP)         ## what every change must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory test

format: $(STAMP)        ## rewrite the sources in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The stamp makes the second run quick: pip runs again only when the dependencies change.
$(STAMP): pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .pytest_cache .ruff_cache
