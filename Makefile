# The verbs of this repo. `make help` lists them; CI runs the same ones.
#
#   make grade                  set everything up and grade lesson 48 as it stands
#   make test                   set everything up and run the kit's own tests
#
# Variables:
#   PYTHON=python3.12           which Python to build the environment with
#   TORCH_INDEX=URL             a wheel index for torch alone (see "Installing torch" in README.md)
#   LESSON=lesson48             what `make grade` grades
#   JOBS=2                      processes for the tests

LESSON ?= lesson48
JOBS ?= 2
TORCH ?= torch==2.13.0
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup grade test bench lint format schema goldens stubs clean

help: ## list the verbs
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: $(READY) ## make the environment in .venv

$(READY): pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" sh scripts/make-venv.sh $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[dev]'
	@touch $(READY)

# A learner's file that is not done yet is no error of make's: exit codes 0 and 1 are fine.
grade: $(READY) ## grade a lesson as it stands
	@$(BIN)/grade $(LESSON) || [ $$? -eq 1 ]

test: $(READY) ## run the kit's own tests
	OMP_NUM_THREADS=1 PYTHONWARNDEFAULTENCODING=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

bench: $(READY) ## measure what a learner waits for
	$(BIN)/python -m tests.bench --json bench.json

lint: $(READY) ## ruff, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

stubs: $(READY) ## generate the stubs from the solutions
	$(BIN)/python -m grader.author.stub

schema: $(READY) ## write the JSON Schema of the results
	$(BIN)/python -m grader.results > docs/integrator/results.schema.json

goldens: $(READY) ## renew the golden reports
	$(BIN)/python -m pytest tests/grader/report --renew-goldens

clean: ## remove what was made, but not your work
	rm -rf $(VENV) .grade .mypy_cache .pytest_cache .ruff_cache build *.egg-info bench.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
