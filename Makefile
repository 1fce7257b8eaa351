# `make up` and `make demo` are all that a newcomer needs; both set up first.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# What needs nothing but this clone; `make bench-uci` needs the UCI sets beside it. posteriors runs training.
BENCHMARKS := service posteriors members

# `make up TORCH_INDEX=…` takes PyTorch from that index too; on Linux pip's own brings CUDA along, gigabytes of it.
TORCH_INDEX ?=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# What the packages of the service ship beside what it runs: their test suites, and Arrow's network clients. 240 MB.
TESTED := matplotlib mpmath networkx numba numpy pyarrow scipy sklearn sympy torch
UNUSED := torch/test torch/bin/*[Tt]est* torch/bin/protoc* pyarrow/*flight* pyarrow/*s3*

# The page: app/ui/dist, which is built and never committed. CHECKERS stands for what only its checks and tests need.
UI := app/ui
NPM := sh $(UI)/npm.sh
BUNDLE := $(UI)/dist/index.html
CHECKERS := $(UI)/node_modules/.checkers
PACKAGES := $(wildcard $(UI)/package.json $(UI)/package-lock.json)
SOURCES := $(shell find $(UI)/src $(UI)/public -type f ! -name '*.test.*' ! -name schema.d.ts 2>/dev/null) \
	$(PACKAGES) $(wildcard $(UI)/index.html $(UI)/vite.config.ts)
# Without Node.js or a registry the service runs without its page; only CI insists.
WITHOUT_PAGE := { echo "The page is left out: it needs Node.js 20.19 or newer (or PyPI, to fetch it) and the npm registry" >&2; test -z "$$CI"; }

.PHONY: setup up demo ui types test test-fast slow-list check check-ui test-ui lists screenshots soak bench clean

setup: $(VENV)/.installed $(CHECKERS)

# A stamp is older than what it depends on only when a dependency changed. This one is of what `up` and `demo` need.
# pip would compile every module of every package, most of which the service never imports.
$(VENV)/.runs: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and there is no python3 here" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up $(VENV): about a minute on two cores, and 1.3 GB with PyTorch for CPUs"
	@echo "  1/3  an environment of its own (5 s)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "  2/3  PyTorch and the packages of the service, 0.4 GB to fetch (40 s)"
	@$(INSTALL) -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)') -e '.[app,demo]'
	@echo "  3/3  compiling what the service imports (10 s)"
	@cd $(VENV)/lib/python*/site-packages && rm -rf $(UNUSED) && find $(TESTED) -type d -name tests -prune -exec rm -rf {} +
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import app.main, app.rankings.run, app.ensembles.train, sklearn.datasets'
	@touch $@

# And this one of what the tests, the checks and the measurements need as well.
$(VENV)/.installed: $(VENV)/.runs oracles.txt
	@echo "Adding what the tests need: a PostgreSQL server, Ray, checkers and reference implementations, 0.8 GB (a minute or two)"
	@$(INSTALL) -c constraints.txt -e '.[app,demo,ray,test,tune]'
	@$(INSTALL) --no-deps -r oracles.txt
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib/python*/site-packages || true  # some are not Python 3
	@touch $@

# A full node_modules is kept; `npm ci` would take out of it what the build does not need.
$(BUNDLE): $(SOURCES) | $(VENV)/.runs
	@echo "Building the page (10 s the first time)"
	@if ! test $(UI)/node_modules/.package-lock.json -nt $(UI)/package-lock.json && \
		! $(NPM) ci --omit=dev --no-audit --no-fund --silent; then $(WITHOUT_PAGE); \
	elif $(NPM) run --silent build -- --logLevel warn; then echo "  page built"; \
	else echo "The page is left out: it does not build, for the reason above" >&2; test -z "$$CI"; fi

$(CHECKERS): $(PACKAGES) | $(VENV)/.runs
	@echo "Adding what the checks of the page need: 240 packages of npm (40 s)"
	@{ $(NPM) ci --no-audit --no-fund --silent && touch $@; } || $(WITHOUT_PAGE)

ui: $(BUNDLE)

up: $(VENV)/.runs $(BUNDLE)
	@exec $(BIN)/bensemble up

demo: $(VENV)/.runs
	@mkdir -p build
	@exec $(BIN)/bensemble demo --plot build/demo.png

# Test files share the processors: pytest-xdist gives each worker a part, and lets one that is done take from another.
PYTEST := $(BIN)/pytest -n logical --maxprocesses 4 --dist worksteal

test: check ui test-ui
	$(PYTEST) -m "not soak"

# The inner loop: no PostgreSQL, no killed processes, nothing that takes a quarter of a second.
test-fast: setup
	$(BIN)/ruff check .
	$(PYTEST) -m "not soak and not slow"

# What the inner loop leaves out, measured anew.
slow-list: setup ui
	$(PYTEST) -m "not soak" --write-slow-list

check: setup check-ui
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The page is checked against the API as it is now: its types are made from the OpenAPI document, and never committed.
types: setup
	@mkdir -p build
	@$(BIN)/bensemble openapi > build/openapi.json
	@test ! -e $(CHECKERS) || $(NPM) run --silent types

check-ui: types
	@test ! -e $(CHECKERS) || $(NPM) run --silent check

test-ui: types
	@test ! -e $(CHECKERS) || $(NPM) run --silent test

# What follows from the registries: tables of docs/, and the names that the library exports.
lists: setup
	$(BIN)/python docs/write_lists.py

# The pictures of the page in README.md and docs/.
screenshots: setup ui
	$(BIN)/python docs/screenshots.py

# Long crash and load runs.
soak: setup
	$(BIN)/pytest -m soak

# benchmarks/NAME.py runs in .venv. Where benchmarks/NAME.requirements.txt lies beside it, that is a peer's: it runs in
# an environment of its own, so that what a peer pins cannot change what we measure.
bench: $(BENCHMARKS:%=bench-%)

bench-%: setup
	@if [ -e benchmarks/$*.requirements.txt ]; then \
		{ test -x build/bench/$*/bin/python || $(BIN)/python -m venv build/bench/$*; } && \
		build/bench/$*/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/$*.requirements.txt && \
		build/bench/$*/bin/python benchmarks/$*.py; \
	else \
		$(BIN)/python benchmarks/$*.py; \
	fi

clean:
	rm -rf $(UI)/node_modules $(UI)/dist $(UI)/src/api/schema.d.ts
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find app bensemble_core tests benchmarks -name __pycache__ -type d -exec rm -rf {} +
