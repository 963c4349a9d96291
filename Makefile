# Everything from a fresh machine: with Python 3.11 or newer and make, `make demo` and `make test` do the rest.
# A virtual environment is made in .venv once, with the versions of constraints.txt. pip is used as it is set up
# on the machine.

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
ARGS  ?=

.PHONY: help demo test lint bench pins clean

help:  ## show this list
	@echo "make TARGET [ARGS='…'] [PYTHON=python3.x]"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-7s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## run the demo; ARGS go to `inturn demo`
	@$(BIN)/inturn demo $(ARGS)

test: lint  ## check the code, then run the tests, the quick ones first; ARGS go to pytest
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY)  ## check style, types and which way the imports run
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## run the benchmarks; ARGS go to each of them
	@set -e; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file" $(ARGS); done

pins:  ## renew constraints.txt: set up anew with the newest versions and write them down
	@$(MAKE) --no-print-directory clean
	@echo '# The versions that the tests have run with; `make pins` renews them.' > constraints.txt
	@$(MAKE) --no-print-directory $(READY)
	@$(BIN)/python -m pip freeze --exclude-editable --exclude inturn >> constraints.txt
	@touch $(READY)

clean:  ## remove the virtual environment, caches and builds; what runs have written stays
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The file READY says that the environment is complete; an interrupted set-up is taken up again.
$(READY): pyproject.toml constraints.txt
	@$(BIN)/python -c '' 2>/dev/null || { $(FIND_PYTHON) "$$python" -m venv --clear $(VENV); }
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1' # the first with --group
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[demo,connect,objects,delta,server,postgres]' --group dev
	@touch $(READY)

# Sets $python to the first Python that is new enough and can make a virtual environment (Debian packs that apart).
# A name on the PATH may be a version manager's, with nothing behind it: only running it tells.
define FIND_PYTHON
python=; \
for name in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python); do \
  if $$name -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
  then python=$$name; break; fi; \
done; \
if [ -z "$$python" ]; then \
  echo "inturn needs Python 3.11 or newer with its venv module, and none is on the PATH." >&2; \
  echo "Install one (on Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2; \
  exit 1; \
fi; \
echo "making $(VENV) with $$($$python --version); this takes a few minutes";
endef
