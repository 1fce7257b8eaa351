# `make up` and `make demo` are all that a newcomer needs; both set up first.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# What needs nothing but this clone; `make bench-uci` needs the UCI sets beside it. posteriors runs training.
BENCHMARKS := service posteriors members

.PHONY: setup up demo test check soak bench clean

setup: $(VENV)/.installed

# The stamp is older than what it depends on only when a dependency changed.
$(VENV)/.installed: pyproject.toml constraints.txt oracles.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and there is no python3 here" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "Installing into $(VENV); the first time takes a few minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[app,demo,fast,ray,test,tune]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r oracles.txt
	@touch $@

up: setup
	@exec $(BIN)/bensemble up

demo: setup
	@mkdir -p build
	@exec $(BIN)/bensemble demo --plot build/demo.png

test: check
	$(BIN)/pytest -m "not soak"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find app bensemble_core tests benchmarks -name __pycache__ -type d -exec rm -rf {} +
