# Every target sets up what it needs: a bare machine with Python 3.11 or newer and pip is enough.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow slow-float32 nightly notebooks lint api docs bench dist dist-check resolve release clean
.NOTPARALLEL:

.venv/pip: pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' \
		|| { echo 'kernax needs Python 3.11 or newer with pip and venv: make PYTHON=python3.11, or install python3-venv'; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	@touch $@

# One stamp an extra, so that each is installed once.
.venv/%: .venv/pip
	$(BIN)/pip install --quiet --editable '.[$*]'
	@touch $@

demo: .venv/demo
	@$(BIN)/python examples/write_diabetes.py demo/diabetes.csv
	$(BIN)/kernax fit demo/diabetes.csv --target progression --plot demo/diabetes.png --out demo/diabetes.kernax
	@$(BIN)/python examples/write_rings.py demo/rings.csv
	$(BIN)/kernax fit demo/rings.csv --target place --plot demo/rings.png
	$(BIN)/python examples/forecast_co2.py demo/co2.png

# The suite, once in each precision, each in its own processes. Annotated shapes are checked in
# float32 alone, which has a third of the tests; the workflows check them in both. CI runs it with
# TIER='not nightly': one pass starts its processes once, and shares what both tiers compile.
TIER ?= not slow and not nightly
test slow slow-float32 nightly: export JAXTYPING_DISABLE = 1
# Bytecode is kept: the tests' own takes 4 s of processor time in each of their processes, that of kernax
# 0.3 s in each program that a test starts.
test slow slow-float32 nightly: export PYTHONDONTWRITEBYTECODE =
test: .venv/test
	JAX_ENABLE_X64=1 $(BIN)/python -m pytest -m '$(TIER)' --budgets --durations=10
	JAX_ENABLE_X64=0 JAXTYPING_DISABLE=0 $(BIN)/python -m pytest --budgets

# What takes 1 to 5 s, which CI runs as well.
slow: .venv/test
	JAX_ENABLE_X64=1 $(BIN)/python -m pytest -m 'slow and not nightly' --budgets --durations=10
	$(MAKE) slow-float32

slow-float32: .venv/test
	JAX_ENABLE_X64=0 $(BIN)/python -m pytest -m 'slow and not nightly' --budgets --durations=10

# All that takes longer than a second, with the flags of XLA that users have: the conftest has quicker ones.
nightly: export XLA_FLAGS =
nightly: .venv/test .venv/notebooks
	JAX_ENABLE_X64=1 $(BIN)/python -m pytest -m 'slow or nightly' --durations=30
	JAX_ENABLE_X64=0 $(BIN)/python -m pytest -m 'slow or nightly' --durations=30

# Runs the notebooks and keeps what they show.
notebooks: .venv/notebooks
	$(BIN)/jupyter execute --inplace --NotebookClient.record_timing=False notebooks/*.ipynb

lint: .venv/test .venv/lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	$(BIN)/mypy

# The page of all public names.
api: .venv/pip
	$(BIN)/pip install --quiet --editable .
	$(BIN)/python docs/write_api.py

# The documentation site, site/html: strictly, so that a broken link or an unknown name is an error.
docs: .venv/docs
	$(BIN)/python docs/write_site.py

# Some 30 minutes on two quiet cores: every question, and the tables of benchmarks/README.md and docs/speed.md.
bench: .venv/bench
	$(BIN)/python -m benchmarks --record

# What a release consists of, checked, and its wheel in a bare environment, away from the sources.
dist: .venv/dist
	rm -rf dist .cache/bare
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv .cache/bare
	.cache/bare/bin/pip install --quiet "$$(ls dist/*.whl)[demo]"
	cd .cache && bare/bin/python ../examples/write_diabetes.py bare/diabetes.csv
	cd .cache && bare/bin/kernax fit bare/diabetes.csv --target progression --plot bare/diabetes.png --out bare/diabetes.kernax
	cd .cache && bare/bin/kernax predict bare/diabetes.kernax bare/diabetes.csv --out bare/predictions.csv

# The wheel with the oldest and with the newest dependencies that it admits, away from the sources,
# and tests from the unpacked sdist.
dist-check: dist
	rm -rf .cache/oldest .cache/newest .cache/sdist
	$(BIN)/python .ci/oldest.py cli files sklearn > .cache/oldest.txt
	for age in oldest newest; do \
		$(PYTHON) -m venv .cache/$$age || exit 1; \
		touch .cache/newest.txt; \
		.cache/$$age/bin/pip install --quiet "$$(ls dist/*.whl)[cli,files,sklearn]" --constraint .cache/$$age.txt || exit 1; \
		(cd .cache && $$age/bin/kernax fit bare/diabetes.csv --target progression --out $$age/diabetes.kernax) || exit 1; \
		(cd .cache && $$age/bin/kernax predict $$age/diabetes.kernax bare/diabetes.csv --out $$age/predictions.csv) || exit 1; \
		(cd .cache && $$age/bin/python -c 'import kernax.sklearn') || exit 1; \
	done
	mkdir .cache/sdist
	tar --extract --file dist/*.tar.gz --directory .cache/sdist --strip-components 1
	.cache/newest/bin/pip install --quiet "$$(ls dist/*.tar.gz)[test]"
	cd .cache/sdist && ../newest/bin/python -m pytest --collect-only > collected.txt
	cd .cache/sdist && ../newest/bin/python -m pytest tests/kernels tests/test_*.py

# Whether pip finds versions for all extras together, and for the tests the oldest ones; installs nothing.
resolve: .venv/pip
	$(BIN)/pip install --dry-run --quiet --editable '.[test,lint,docs,dist,bench,notebooks,all]'
	mkdir -p .cache
	$(BIN)/python .ci/oldest.py test > .cache/oldest.txt
	$(BIN)/pip install --dry-run --quiet --ignore-installed --editable '.[test]' --constraint .cache/oldest.txt

# Writes VERSION where it stands and dates the changelog; commits and tags nothing.
release:
	$(PYTHON) .ci/prepare_release.py $(VERSION)

clean:
	rm -rf .venv .cache demo site dist
