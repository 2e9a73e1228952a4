# make lab       everything installed, then JupyterLab on the first notebook
# make test      everything the tests need, then those to run before a commit
# make test-all  all of them
# make help      the rest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
NOTEBOOK ?= notebooks/01_first_classifier.ipynb
# e.g. make lab LAB_ARGS="--no-browser --port 9000"
LAB_ARGS ?=
# e.g. make lab PIP_ARGS="--index-url ..."
PIP_ARGS ?=
# e.g. make test PYTEST_ARGS="tests/unit/server -k proxy"
PYTEST_ARGS ?=
export PYTEST_ARGS

# pip compiles one file after the other, which takes half of the time; COMPILE uses every core
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check \
  -c constraints.txt $(PIP_ARGS)
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
# whoever is root here (a container) has to say so to Jupyter
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
FRONTEND := $(shell find extensions \( -name node_modules -o -name lib -o -name .yarn \) -prune \
  -o -type f -print)

.PHONY: help lab test test-rest test-all check ui docs bench fuzz build clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

lab: $(STAMPS)/lab ## install everything, then open the first notebook in JupyterLab
	exec $(BIN)/jupyter lab $(AS_ROOT) $(LAB_ARGS) $(NOTEBOOK)

test: $(STAMPS)/test ## what to run before a commit: style, types, quick tests (PYTEST_ARGS selects)
	@$(BIN)/python scripts/run_tests.py $(if $(PYTEST_ARGS),pytest,quick)

test-rest: $(STAMPS)/test # what test-all runs and test does not
	@$(BIN)/python scripts/run_tests.py rest

test-all: $(STAMPS)/test ## every check and test, none twice
	@$(BIN)/python scripts/run_tests.py all

check: $(STAMPS)/test ## style, types and the front end's own tests alone
	@$(BIN)/python scripts/run_tests.py style types frontend

ui: $(STAMPS)/test ## the browser tests alone (UI_ARGS goes to Playwright)
	@$(BIN)/python scripts/run_tests.py ui -- $(UI_ARGS)

docs: $(STAMPS)/test ## the pages, the notebooks and the API reference, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "Open site/index.html, or: $(BIN)/python -m http.server --directory site"

bench: $(STAMPS)/bench ## measure against peers and print the ratios
	$(BIN)/python -m pytest -q -s -m benchmark tests/benchmarks $(PYTEST_ARGS)

fuzz: $(STAMPS)/fuzz ## long property tests, an hour of them
	WORKBENCH_FUZZ=1 $(BIN)/python -m pytest -q -m "fuzz or hypothesis" tests $(PYTEST_ARGS)

build: $(STAMPS)/test ## build dist/*.whl and dist/*.tar.gz
	$(BIN)/python -m build

clean: ## remove what was built, and the environment
	rm -rf $(VENV) dist build site artifacts .cache test-results playwright-report workbench/static \
	  workbench/labextension extensions/node_modules extensions/*/lib
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- installing: each stamp is newer than what it was made from; each step says how long it took ---

$(STAMPS)/venv:
	@python="$$(scripts/find_python)"; \
	echo "Using $$("$$python" --version) for $(VENV)."; \
	"$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) "pip>=25.1"
	@mkdir -p $(STAMPS) && touch $@

# torch comes first and alone, so that the pin and not a dependency decides which build is fetched
$(STAMPS)/torch: constraints.txt | $(STAMPS)/venv
	@echo "Installing PyTorch."; $(PIP) torch; echo "  installed in $$SECONDS s"
	@touch $@

$(STAMPS)/lab: $(STAMPS)/torch pyproject.toml hatch_build.py scripts/frontend.py $(FRONTEND)
	@echo "Installing Workbench and JupyterLab; the front end is built if needed."; \
	$(PIP) --editable '.[examples]'; $(COMPILE); echo "  installed in $$SECONDS s"
	@touch $@

$(STAMPS)/test: $(STAMPS)/lab
	@echo "Installing what the tests need."; $(PIP) --group test; \
	$(PIP) --prefix .cache/collaboration jupyter-collaboration \
	  || echo "jupyter-collaboration cannot be installed: its test is skipped."; \
	$(BIN)/python scripts/frontend.py --install-only; \
	$(BIN)/python scripts/chromium.py > /dev/null || true; $(COMPILE); echo "  installed in $$SECONDS s"
	@touch $@

$(STAMPS)/bench: $(STAMPS)/test
	@echo "Installing what is measured against."; $(PIP) --group bench; $(COMPILE); \
	echo "  installed in $$SECONDS s"
	@touch $@

$(STAMPS)/fuzz: $(STAMPS)/test
	@$(PIP) --only-binary atheris atheris \
	  || echo "There is no build of atheris for this Python and system: its runs are skipped."
	@touch $@
