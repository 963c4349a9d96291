# Everything from a fresh machine: with Python 3.11 or newer and make, `make demo` and `make test` do the rest.
# A virtual environment is made in .venv once, with the versions of constraints.txt. pip is used as it is set up
# on the machine.

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/spark-classes.jsa
ARGS  ?=
SERVICES = chromium prometheus rabbitmq-server redis-server systemd

STAGES = $(BIN)/python .ci/stages.py
EXTRAS = demo,console,connect,objects,delta,server,postgres,kafka,schema-registry,rabbitmq,sqs,telemetry
LAB = --scenario transfers --sweep consumers=1,2,4,8 --sweep failures=0,1%,5% --recommend

unexport PYTHONDONTWRITEBYTECODE # or each process rewrites the assertions of all tests again

.PHONY: help demo lab quick test ci nightly steady soak services lint docs bench spark-versions pythons supply-chain pins clean

help:  ## show this list
	@echo "make TARGET [ARGS='…'] [PYTHON=python3.x]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## run the demo; ARGS go to `inturn demo`
	@$(BIN)/inturn demo $(ARGS)

lab: $(READY)  ## run a scenario through every design, and say where the page is; ARGS go to `inturn lab`
	@$(BIN)/inturn lab $(or $(ARGS),$(LAB)) --out build/lab.html

quick: $(READY)  ## check the style and test the core, the stores and the kernel; ARGS go to pytest
	$(BIN)/ruff check -q
	$(STAGES) quick -- $(ARGS)

test: $(CLASSES)  ## check the code, then run all tests but the slow ones; ARGS go to pytest
	$(STAGES) lint parallel spark -- $(ARGS)

ci: $(CLASSES)  ## what a change must pass: `make test`, the slow tests, and what is nightly if the change touches it
	$(STAGES) -- $(ARGS)

nightly: $(CLASSES)  ## `make ci`, environments from registries, the oldest Spark, the supply chain; then `make soak`
	code=0; $(STAGES) --nightly -- $(ARGS) || code=1; for each in spark-versions soak; do \
	  $(MAKE) --no-print-directory $$each || code=1; done; exit $$code

steady: $(READY)  ## run tests that are stopped again and again, as beside other work; ARGS choose the tests
	$(STAGES) --starve 30/150 parallel -- $(ARGS)

soak: $(READY)  ## repeat the tests that draw by chance with new seeds, for MINUTES (60); ARGS go to pytest
	$(BIN)/python tests/soak.py $(or $(MINUTES),60) $(ARGS)

services:  ## as root on Debian: install the servers that tests start, if they are not there; no other target does
	@dpkg -s $(SERVICES) > /dev/null 2>&1 || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends -o Acquire::Retries=3 $(SERVICES); }
	@id pgserver > /dev/null 2>&1 || useradd pgserver # PostgreSQL's, which its package would add, in each process at once

lint: $(READY)  ## check style, types and which way the imports run
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## write the documentation as a site to build/docs, to be read without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q && echo "the documentation is in build/docs/index.html"

supply-chain: $(READY)  ## check the pinned versions against advisories, and write a bill of materials to build/
	$(BIN)/python .ci/supply_chain.py

bench: $(READY)  ## run the benchmarks; ARGS go to each of them
	@set -e; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file" $(ARGS); done

SPARKS := 3.5.9 4.0.5 4.1.4 4.2.1 4.3.0

spark-versions: $(READY)  ## run a telling part of the Spark tests with each version; one alone: make spark-3.5.9
	$(BIN)/python tests/other_sparks.py $(SPARKS)

spark-%: $(READY)
	$(BIN)/python tests/other_sparks.py $*

pythons: $(READY)  ## run the tests without Spark, and a step on Spark, from the wheel on each Python that the PATH has
	$(BIN)/python tests/other_pythons.py

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
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[$(EXTRAS)]' --group dev
	@touch $(READY)

$(CLASSES): $(READY) tests/spark_classes.py
	@$(BIN)/python tests/spark_classes.py

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
