# `make help` lists the targets. Everything is installed below .venv; nothing else is needed than Python 3.11+,
# a C compiler and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile
COLD := pip|setuptools|Cython|mypy|mypyc|fontTools|pyspark/(ml|mllib|pandas)|debugpy|IPython|jedi|prompt_toolkit|pygments|wcwidth
SIDE_BY_SIDE := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.side_by_side
HOT := $(shell find src -name '*_cy.py' -o -name '*.pxd')
ROUNDS ?= 50
HA_ROUNDS ?= 30
DLEDGER_ROUNDS ?= 30
SINK_ROUNDS ?= 2
GROUPS_ROUNDS ?= 20
POP_ROUNDS ?= 20
HISTORIES ?= 40
SEEDS ?= 2000
RAFT_SEEDS ?= 10000
BENCH ?=
WHEELS ?=
PAGES = $(shell find tests -name 'test_*manual.py' -o -name 'test_*_map.py' -o -name test_pages.py -o -name test_links.py -o -name test_tutorial.py -o -name test_howto.py)
BASE ?= main
FIRST ?= 0
SOAK_MINUTES ?= 10
MODULES ?=
SHARE ?= 1
LEAST ?= 0

.DEFAULT_GOAL := help
.PHONY: help setup java run demo-ha demo-dledger check test test-long pytest lint types affected fmt sim torture hostile fuzz mutants interop bench wheel release-tools wheels try-wheels release changelog docs docs-serve docs-look pages hooks clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.ready: pyproject.toml setup.py $(HOT)
	@echo 'setting up $(VENV): downloads and compiles for some minutes, without further output'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) 'setuptools>=77' 'Cython>=3.1'
	@# Compiled beside the downloads; pip's own build waits for it, takes what is there and says what fails. Spark comes
	@# as source, and its wheel, which is unpacked at once, is not compressed: 450 MB, hardly smaller then.
	@printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/wheels.cfg
	@$(BIN)/python setup.py -q build_ext --inplace >/dev/null 2>&1 & \
	  DIST_EXTRA_CONFIG='$(abspath $(VENV)/wheels.cfg)' $(PIP) --no-build-isolation -e '.[dev]'; \
	  status=$$?; wait; exit $$status
	@# Bytecode: a server starts in half the time, also where Python may not write it. What set-up, types, a notebook
	@# or nobody loads needs none: more than a third of it all.
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/|-packages/($(COLD))/' $(VENV)/lib src; true
	@touch $@

setup: $(VENV)/.ready ## virtual environment, dependencies, compiled modules

java: setup ## set up, and Java for Spark: the machine's own of release 17 or later, or one from the package index
	@$(BIN)/python -m maxq.pipeline.spark.java 2>/dev/null || \
	  $(PIP) --no-build-isolation -e '.[dev,java]'
	@$(BIN)/python -m maxq.pipeline.spark.java >/dev/null

run: setup java ## set up, run the demonstration, and (with a terminal) leave a server running
	$(BIN)/python -m examples.python_source

demo-ha: setup ## a master is killed, its slave serves the readers, the master comes back
	$(BIN)/python -m examples.master_and_slave

demo-dledger: setup ## three brokers elect their master, which is killed three times under load
	$(BIN)/python -m examples.elected_master

check: setup ## for the loop of work, 90 s: lint, types, unit tests of what changed since BASE=main, and of the core
	@$(MAKE) --no-print-directory -j3 lint types affected

test: setup java ## set up and run every check, the tests in their short form
	@# mypy keeps one core busy for a minute, and the tests need not wait for it: what it says comes after theirs.
	@$(MAKE) --no-print-directory -kj2 lint types >$(VENV)/lint.log 2>&1 & checks=$$!; trap 'kill $$checks' INT TERM; \
	  $(MAKE) --no-print-directory pytest; tests=$$?; wait $$checks; checks=$$?; cat $(VENV)/lint.log; \
	  said() { test $$1 = 0 && echo passed || echo FAILED; }; \
	  echo "make test: tests $$(said $$tests), lint and types $$(said $$checks)"; test $$tests$$checks = 00

test-long: setup java ## the tests in their long form: more seeds, all rows of each matrix, campaigns of minutes
	$(SIDE_BY_SIDE) --processes 6 -m 'not interop' tests

pytest: setup
	@# Six processes on two cores: many tests wait, for clocks, disks and each other.
	$(SIDE_BY_SIDE) -p tests.memory_folder --processes 6 -m 'not interop and not slow' tests

lint: setup ## ruff, the import contracts, spelling, and the style of the pages
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/codespell *.md benches changes deploy docs examples src wheels .github
	$(BIN)/python -m tests.prose

types: setup ## mypy --strict
	$(BIN)/mypy

affected: setup
	@$(SIDE_BY_SIDE) -p tests.memory_folder --processes 2 -m 'not interop and not slow' $$($(BIN)/python -m tests.affected --base $(BASE))

fmt: setup ## format in place
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

sim: setup ## simulated crashes, bit flips, master and slaves, DLedger groups: SEEDS=n RAFT_SEEDS=n FIRST=s
	$(BIN)/python -m tests.simulation.campaign --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.simulation.raft.campaign --seeds $(RAFT_SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.simulation.raft.campaign --mutations
	$(BIN)/python -m tests.simulation.mutations

torture: setup ## kill -9 under load, real processes, alone, as master and slave, as DLedger group, what clients feel of its fail-overs, promises of every kind and popping on each of them, writing from Spark, and Spark on three groups at once: ROUNDS=n HA_ROUNDS=n DLEDGER_ROUNDS=n HISTORIES=n POP_ROUNDS=n SINK_ROUNDS=n GROUPS_ROUNDS=n
	$(BIN)/python -m tests.integration.torture.broker_torture --rounds $(ROUNDS)
	$(BIN)/python -m tests.integration.torture.ha_torture --rounds $(HA_ROUNDS)
	$(BIN)/python -m tests.integration.torture.dledger_torture --rounds $(DLEDGER_ROUNDS)
	$(BIN)/python -m tests.integration.torture.failover_torture
	$(BIN)/python -m tests.integration.torture.promise_torture --rounds $(HISTORIES)
	$(BIN)/python -m tests.integration.torture.pop_torture --rounds $(POP_ROUNDS)
	$(BIN)/python -m tests.integration.torture.pop_torture --rounds $(POP_ROUNDS) --on pair
	$(BIN)/python -m tests.integration.torture.pop_torture --rounds $(POP_ROUNDS) --on dledger
	$(BIN)/python -m tests.pipeline.sink_torture --rounds $(SINK_ROUNDS)
	$(BIN)/python -m tests.pipeline.groups_torture --rounds $(GROUPS_ROUNDS)

hostile: setup ## what strangers can do to a server: every request and what it may reach, what takes long, and what is left when many have come and gone: SOAK_MINUTES=n
	$(BIN)/python -m pytest -q tests/integration/access tests/integration/cli/test_every_command.py
	$(BIN)/python -m fuzz.time_fuzzer
	$(BIN)/python -m tests.simulation.servers.soak_story
	$(BIN)/python -m tests.integration.soak.soak_torture --minutes $(SOAK_MINUTES)
	$(BIN)/python -m tests.integration.soak.soak_groups

fuzz: setup ## every parser of outside bytes, for longer
	$(BIN)/python -m fuzz.run

mutants: setup ## small changes of the modules of weight, which their tests must notice: MODULES='raft maxq.store.log.commit_log' SHARE=0.1 LEAST=60
	@$(BIN)/python -c 'import importlib.util as u; u.find_spec("mutmut") or exit(1)' || $(PIP) --no-build-isolation -e '.[mutants]'
	nice $(BIN)/python -m tests.mutants --share $(SHARE) --least $(LEAST) $(MODULES)

interop: setup ## against the Java and C++ originals (needs a JDK and Maven; 1 to 2 hours on 2 cores)
	$(BIN)/python -m pytest --durations=10 tests/interop

bench: setup ## side by side with Apache RocketMQ (needs a JDK and Maven): BENCH='--only send_1k'
	$(BIN)/python benches/compare_java.py $(BENCH)

docs: setup ## the manual as a site in site/; broken links are errors
	@$(BIN)/python -c 'import importlib.util as u; u.find_spec("zensical") or exit(1)' || $(PIP) --no-build-isolation -e '.[docs]'
	$(BIN)/zensical build --clean --strict

docs-serve: docs ## the same at http://127.0.0.1:8000, made anew when a page changes
	$(BIN)/zensical serve

docs-look: docs ## look at every page of the site in Chromium, wide, narrow and dark: what is cut, what is missing
	$(BIN)/python -m pytest -n0 -rs tests/integration/site

wheel: setup ## build a wheel for this machine into dist/
	$(BIN)/python -m build --wheel --no-isolation

release-tools: setup
	@$(BIN)/python -c 'import auditwheel, towncrier, twine, ziglang' 2>/dev/null || $(PIP) --no-build-isolation -e '.[dev,release]'

wheels: release-tools ## build all that is published into dist/, and try what this machine can run: WHEELS='--versions 3.13'
	PATH=$(CURDIR)/$(BIN):$$PATH nice $(BIN)/python -m wheels.build $(WHEELS)

try-wheels: ## install what is in dist/ and fits this machine, without a compiler, and use it
	$(PYTHON) -m wheels.smoke dist/*.whl

release: release-tools ## wheels, source archive and notes of the release in dist/, checked; uploads nothing
	@test -z "$$(git status --porcelain)" || { echo 'make release: commit first; git status shows what is not committed'; exit 1; }
	rm -rf dist
	$(MAKE) --no-print-directory wheels
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python -m wheels.notes > dist/release-notes.md

changelog: release-tools ## move the files of changes/ into CHANGELOG.md, under the version of the package
	$(BIN)/towncrier build --yes --version "$$($(BIN)/python -c 'import maxq; print(maxq.__version__)')"

pages: setup java ## what the pages show and link to: commands, programs, tables, files
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not interop and not slow' $(PAGES)

hooks: setup ## have git run lint before each commit
	@$(BIN)/python -c 'import pre_commit' 2>/dev/null || $(PIP) pre-commit
	$(BIN)/pre-commit install

clean: ## remove what was built
	rm -rf $(VENV) build dist site src/*.egg-info
	find src -name '*.so' -delete
