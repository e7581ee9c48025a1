# make audit and make test set up all they need: a virtual environment in .venv, with pinned versions.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
ENGINES := .venv/.engines
DOCS := .venv/.docs
LAB := .venv/.lab
SIDE_BY_SIDE = --numprocesses logical --maxprocesses 4 --dist worksteal
ARTICLE = cd paper && latexmk -pdf -interaction=nonstopmode -halt-on-error -silent -outdir=build paper.tex

.PHONY: audit test test-engines lint types bench docs ledgers figures figures-fast overview paper paper-fast latexmk notebooks lab kill-matrix diagnoses teeth clean help

help:
	@echo "make audit   audit the standard rule, on synthetic and on real p and q (under a minute)"
	@echo "make test    run the tests;  make test-engines  install real engines on PyTorch and MLX, and run theirs"
	@echo "make lint    ruff;  make types  mypy;  make bench  benchmarks, as ratios"
	@echo "make docs    build the site, in results/site;  make ledgers   write the generated pages in docs again"
	@echo "make figures   the literature's figures and tables again, in results/figures;  make figures-fast   with fewer steps"
	@echo "make paper   the article, its numbers filled in from the figures' tables;  make paper-fast   from the fast ones"
	@echo "make lab     open the notebooks in JupyterLab;  make notebooks   execute them and write their .ipynb"
	@echo "make teeth   what each level sees of known mistakes, and its calibration (half an hour)"
	@echo "make diagnoses   how often a known mistake is named (an hour);  make kill-matrix   what engines' own tests see (an hour)"

audit: $(STAMP)
	$(BIN)/specsim audit standard --level quick --out results/audit

test: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE)

test-engines: $(ENGINES)
	$(BIN)/pytest -q tests/engines tests/auditing/test_adapters.py

docs: $(DOCS)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html docs results/site
	@echo "results/site/index.html"

ledgers: $(STAMP)
	$(BIN)/python docs/regenerate.py
	$(BIN)/python docs/claims.py

figures: $(STAMP)
	$(BIN)/python -m figures

overview: $(STAMP)
	$(BIN)/python -m figures.overview

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
	$(BIN)/python notebooks/execute.py

lab: $(LAB)
	$(BIN)/jupyter lab notebooks

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

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

$(LAB): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,notebooks]'
	touch $@

# without their dependencies: what is called of them needs none but these
$(ENGINES): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,engines]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps eagle-llm medusa-llm
	touch $@

clean:
	rm -rf .venv results docs/api docs/notebooks paper/build specsim/__pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis
