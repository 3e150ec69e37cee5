# jaxrl. `make pong` sets everything up and trains; `make test` sets everything up and tests.

PYTHON ?= python3
ALGO   ?=
SEED   ?= 1
STEPS  ?=
DEVICES ?=
RUN    ?=
SEEDS  ?= $(SEED)
MINUTES ?= 9
# Of the command line only: some systems have a NAME in the environment.
NAME   :=

# A misspelt variable would train for hours with another's default.
KNOWN  := PYTHON ALGO SEED STEPS DEVICES RUN SEEDS MINUTES NAME CUDA
GIVEN  := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
WRONG  := $(filter-out $(KNOWN),$(GIVEN))
$(if $(WRONG),$(error $(WRONG) is no variable of this Makefile: known are $(KNOWN)))

SWEEPS := atari5 atari57
GAMES  := $(shell tail -n +2 jaxrl/atari/atari_actions.csv | cut -d, -f1) catch catch_memory
COMMA  := ,
JAXRL  := .venv/bin/jaxrl
# JAX comes with CUDA where there is an NVIDIA driver.
CUDA   := $(shell nvidia-smi >/dev/null 2>&1 && echo cuda)
# The versions that were tested, of the newest Python below the one that is here.
MINOR  := $(shell $(firstword $(wildcard .venv/bin/python) $(PYTHON)) -c 'import sys; print(f"3.{sys.version_info[1]}")')
TESTED := $(or $(wildcard constraints/$(MINOR).txt),$(lastword $(sort $(wildcard constraints/*.txt))))
INSTALL := .venv/bin/pip install --quiet --disable-pip-version-check --constraint $(TESTED)
# Otherwise the clone's folder would shadow the package in its parent folder.
EDITABLE := --config-settings editable_mode=compat --editable

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev test test-long tests-long test-thorough lint format clean games docs docs-check site suite performance wheels $(GAMES) $(SWEEPS)

help:
	@echo "make pong               train on Pong (any of the games below), with"
	@echo "     ALGO=vtrace_fast   a file of configs/, by default this one (pong, catch: vtrace_cpu; catch_memory: vtrace_lstm_cpu): $(sort $(basename $(notdir $(wildcard configs/*/*.toml))))"
	@echo "     STEPS=3e6          agent steps; default is the configuration's, of catch 1e5 (a minute)"
	@echo "     SEED=1             of parameters, actions and games"
	@echo "     DEVICES=2          devices; default is every accelerator, or one CPU device"
	@echo "     RUN=runs/x         run directory; default is a new one in runs/"
	@echo "make atari5             five games that stand for all, one after another (make atari57: all), and their scores by the sticky protocol in sticky.json, with"
	@echo "     SEEDS='1 2 3'      ALGO='ppo c51' (several are compared), STEPS, DEVICES; RUN is the sweep's directory"
	@echo "make setup              install jaxrl into .venv (with CUDA where there is a driver)"
	@echo "make test               lint and test          make lint      check style and types"
	@echo "make test-long          with the slow tests too (make test-thorough: an hour of kills and random inputs)"
	@echo "make format             format the code        make games     list every game"
	@echo "make docs-check         run what the documents show"
	@echo "make suite              measure everything that this machine can do (MINUTES=9, RUN=suite), goes on when repeated"
	@echo "make performance        take RUN=suite into docs/results/by_machine.md as the machine NAME"
	@echo "make site               build documentation and API reference into site/, and check its links"
	@echo "make wheels             build wheels with compiled libraries into dist/, and try them"
	@echo "make docs               write docs/reference/{configuration,api}.md, prices of configurations and tables of docs/results/by_machine.md"
	@echo "make clean              remove what setup and tests left (never runs/)"
	@echo
	@echo "games: $(GAMES)" | fold -s -w 100

setup: .venv/jaxrl-installed
	@echo "jaxrl is in .venv: now .venv/bin/jaxrl play pong (films a trained policy), or make pong (trains)"

setup-dev: .venv/jaxrl-dev-installed
	@echo "jaxrl and its tools are in .venv: now make test"

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/jaxrl-installed: pyproject.toml $(TESTED) | .venv/bin/pip
	$(INSTALL) $(EDITABLE) ".$(if $(CUDA),[cuda])"
	@.venv/bin/python -m jaxrl.envs.atari2600 >/dev/null
	@.venv/bin/python -c "from jaxrl.kernels import library; library.lanes()"
	@touch $@

.venv/jaxrl-dev-installed: .venv/jaxrl-installed
	$(INSTALL) $(EDITABLE) ".[dev$(if $(CUDA),$(COMMA)cuda)]"
	@.venv/bin/python -c "from jaxrl.envs.atari2600 import build; build.vector_library()"
	@touch $@

# What trains a game where no ALGO is given: Pong and Catch take minutes only.
USUAL := vtrace_fast
pong catch: USUAL := vtrace_cpu
catch_memory: USUAL := vtrace_lstm_cpu

# Catch is learned in about a minute; STEPS of the command line comes first.
catch catch_memory: STEPS := $(or $(STEPS),1e5)

$(GAMES): .venv/jaxrl-installed
	@$(JAXRL) train --config $(or $(ALGO),$(USUAL)) --game $@ --seed $(SEED) \
	  $(if $(STEPS),--total-steps $(STEPS)) $(if $(DEVICES),--parallel.num-devices $(DEVICES)) \
	  $(if $(RUN),--run-dir $(RUN))

# A member that fails (status 1) costs the others no score.
$(SWEEPS): .venv/jaxrl-installed
	@$(JAXRL) sweep --games $@ --seeds $(SEEDS) --configs $(or $(ALGO),$(USUAL)) \
	  $(if $(STEPS),--total-steps $(STEPS)) $(if $(DEVICES),--num-devices $(DEVICES)) \
	  --root $(or $(RUN),runs/$@); status=$$?; \
	  [ $$status -gt 1 ] || $(JAXRL) evaluate $(or $(RUN),runs/$@) --protocol sticky \
	  --output $(or $(RUN),runs/$@)/sticky.json || status=1; exit $$status

games: .venv/jaxrl-installed
	@$(JAXRL) games

# What they took, by file and by fixture: .venv/bin/python -m tools.test_times
PYTEST := .venv/bin/python -m pytest --numprocesses 2 --dist worksteal
TIMED  := --durations=10 --junitxml .pytest_cache/times.xml

test: lint
	$(PYTEST) $(TIMED) -m "not slow"

test-long: lint tests-long

# Old runs are also read and trained on as users' programs are compiled (tests/conftest.py).
tests-long: .venv/jaxrl-dev-installed
	$(PYTEST) $(TIMED)
	JAXRL_AS_USERS_COMPILE=1 $(PYTEST) tests/integration/test_golden.py

test-thorough:
	JAXRL_THOROUGH=1 $(MAKE) test-long

# Sources of C++, and the tables among them that a tool writes.
NATIVE = $(shell find jaxrl tests tools -name '*.h' -o -name '*.cc' -o -name '*.cu')

lint: .venv/jaxrl-dev-installed
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/clang-format --dry-run -Werror $(NATIVE)
	.venv/bin/lint-imports
	.venv/bin/mypy

docs: .venv/jaxrl-dev-installed
	.venv/bin/python -m tools.config_reference > docs/reference/configuration.md
	.venv/bin/python -m tools.api_reference > docs/reference/api.md
	.venv/bin/python -m tools.prices > jaxrl/experiments/price/prices.csv
	.venv/bin/python -m tools.suite_page

site: .venv/jaxrl-dev-installed
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	.venv/bin/python -m tools.site_links

wheels: .venv/jaxrl-dev-installed
	$(INSTALL) $(EDITABLE) ".[wheels]"
	.venv/bin/python -m tools.wheels

suite: .venv/jaxrl-installed
	@$(JAXRL) bench --suite --minutes $(MINUTES) $(if $(RUN),--output '$(RUN)')

performance: .venv/jaxrl-dev-installed
	$(if $(NAME),$(if $(RUN),,$(error NAME needs the results of a suite: add RUN=suite)))
	.venv/bin/python -m tools.suite_page $(if $(RUN),'$(RUN)' '$(NAME)')

docs-check: .venv/jaxrl-dev-installed
	.venv/bin/python -m tests.docs.check

format: .venv/jaxrl-dev-installed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .
	.venv/bin/clang-format -i $(NATIVE)

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache *.egg-info build site
	find jaxrl tests -name __pycache__ -type d -prune -exec rm -rf {} +
