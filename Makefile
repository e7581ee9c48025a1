# make audit and make test set up all they need: a virtual environment in .venv, with pinned versions.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
ENGINES := .venv/.engines
SIDE_BY_SIDE = --numprocesses logical --maxprocesses 4 --dist worksteal
ARTICLE = cd paper && latexmk -pdf -interaction=nonstopmode -halt-on-error -silent -outdir=build paper.tex

.PHONY: audit test test-all test-rest test-engines lint types bench docs figures figures-fast paper paper-fast latexmk notebooks kill-matrix diagnoses teeth clean help

help:
	@echo "make audit   audit the standard rule, on synthetic and on real p and q (under a minute)"
	@echo "make test    run the tests, but for the slow ones;  make test-all  all of them, at full scale"
	@echo "make test-rest   what test-all does more than test;  make test-engines  install real engines on PyTorch and MLX, and run theirs"
	@echo "make lint    ruff;  make types  mypy;  make bench  benchmarks, as ratios;  make docs  table of rules, claims, pictures"
	@echo "make figures   the literature's figures and tables again, in results/figures;  make figures-fast   with fewer steps"
	@echo "make paper   the article, its numbers filled in from the figures' tables;  make paper-fast   from the fast ones"
	@echo "make notebooks   run the notebooks, into results/notebooks"
	@echo "make teeth   what each level sees of known mistakes, and its calibration (half an hour)"
	@echo "make diagnoses   how often a known mistake is named (an hour);  make kill-matrix   what engines' own tests see (an hour)"

audit: $(STAMP)
	$(BIN)/specsim audit standard --level quick --out results/audit

test: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20

test-all: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --all

test-rest: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --all -m "slow or scaled"

test-engines: $(ENGINES)
	$(BIN)/pytest -q tests/engines tests/auditing/test_adapters.py

docs: $(STAMP)
	$(BIN)/python docs/regenerate.py
	$(BIN)/python docs/claims.py

figures: $(STAMP)
	$(BIN)/python -m figures

figures-fast: $(STAMP)
	$(BIN)/python -m figures --fast

paper: latexmk figures
	$(BIN)/python -m paper.fill
	$(ARTICLE)

paper-fast: latexmk figures-fast
	$(BIN)/python -m paper.fill --fast
	$(ARTICLE)

latexmk:
	@command -v latexmk >/dev/null || { echo "the article needs latexmk: apt-get install latexmk texlive-latex-recommended texlive-science lmodern"; exit 2; }

notebooks: $(STAMP)
	mkdir -p results/notebooks
	for name in $(notdir $(basename $(wildcard notebooks/*.py))); do \
	    $(BIN)/jupytext --quiet --output results/notebooks/$$name.ipynb notebooks/$$name.py || exit 1; \
	done
	$(BIN)/jupyter execute --timeout=600 --inplace results/notebooks/*.ipynb

kill-matrix: $(STAMP)
	$(BIN)/python docs/kill_matrix.py

diagnoses: $(STAMP)
	$(BIN)/python docs/diagnoses.py

teeth: $(STAMP)
	$(BIN)/python docs/teeth.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/executors.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specsim needs Python 3.11 or later; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# without their dependencies: what is called of them needs none but these
$(ENGINES): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,engines]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps eagle-llm medusa-llm
	touch $@

clean:
	rm -rf .venv results paper/build specsim/__pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis
