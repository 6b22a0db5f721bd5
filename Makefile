# Everything a person runs here. `make help` lists it. Needs Python 3.11+ and make, nothing else.

PYTHON ?= python3
# `make test PYTHON=python3.13` has a virtual environment of its own: the one that is there may be of another Python.
ifeq ($(origin VENV),undefined)
VENV   := .venv$(if $(filter command,$(origin PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
endif
BIN    := $(VENV)/bin
PIP    := $(BIN)/python tools/pip_progress.py $(BIN)/python -m pip install --disable-pip-version-check
WORKERS ?= 2
# Tests wait for a third of their time, slow ones for half of it: one process more than cores, and two.
TESTERS = $(shell expr $(WORKERS) + 1)
SLOW_TESTERS = $(shell expr $(WORKERS) + 2)
EXAMPLES ?= 20
# lib/fairlead/api/version.py is the one place; `make manifests` writes it into the chart.
VERSION := $(shell sed -n 's/^VERSION: Final = "\(.*\)"$$/\1/p' lib/fairlead/api/version.py)
# The timeout of a test raises an exception, which Hypothesis takes for a failure and repeats: so the worker of one that does not end is ended.
HUNG := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
export GPUS ?= 400
export KILLS ?= 10
export NODES ?= 200
# Which Kubernetes the clusters of a run are (1.34, 1.35, 1.36; empty: the newest): demo, test, e2e, chaos.
export KUBERNETES ?=
# Where a shell or an image forbids bytecode, each of the hundreds of programs that tests start would compile all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo screenshots test slow install-test scale evictions kills hostile fuzz chaos replays properties soak decisions gpu lint format bench e2e e2e-kind image image-archive dist release-notes manifests lock clean

help:  ## show this
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Two layers of one virtual environment: what runs, then what tests. The stamps are newer than the lock they installed.
$(VENV)/.runtime: lock/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairlead needs Python 3.11 or newer; set PYTHON=python3.11")'
	@echo "setting up a virtual environment in $(VENV) (once, a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what Fairlead imports: lock/runtime.txt"
	@$(PIP) --require-hashes -r lock/runtime.txt
	@echo "installing fairlead from this folder"
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime lock/dev.txt
	@echo "installing what tests need (once): lock/dev.txt"
	@$(PIP) --require-hashes -r lock/dev.txt
	@touch $@

# helm and kubectl, for the tests of the chart. Where they cannot be had the tests skip, and the next run tries again.
$(VENV)/.tools: $(VENV)/.dev $(wildcard lock/tools*.txt) tools/fetch.py
	@$(BIN)/python tools/fetch.py && if test -x $(BIN)/helm; then touch $@; fi

demo: $(VENV)/.runtime  ## start a cluster in a process, run the main job, show it live (KEEP=1 leaves it running, KUBERNETES=1.34 is that release)
	@$(BIN)/fairlead demo $(if $(KEEP),--keep) $(if $(KUBERNETES),--kubernetes $(KUBERNETES)) $(DEMO_FLAGS)

test: $(VENV)/.dev $(VENV)/.tools  ## run the tests (quiet when green; TESTS=tests/kube runs one part, KUBERNETES=1.34 on clusters of that release)
	@EXAMPLES=0.2 $(BIN)/python -m pytest -n $(TESTERS) --dist worksteal --no-header $(HUNG) -m "not slow and not scale and not install" $(TESTS)

slow: $(VENV)/.dev $(VENV)/.tools  ## run every case of every matrix, the tests on clusters of their own, and properties on many examples (twenty minutes)
	@$(BIN)/python -m pytest -n $(SLOW_TESTERS) --dist worksteal --no-header $(HUNG) -m "(slow or property) and not scale and not install" $(TESTS)

install-test: $(VENV)/.dev $(VENV)/.tools  ## build the image without docker and run every program as its manifest says (Linux, root)
	@$(BIN)/python -m pytest -m "install and not slow" --no-header -rs tests/manifests/test_install.py tests/manifests/test_image_archive.py tests/manifests/release/test_krew.py

scale: $(VENV)/.dev  ## fill a cluster of 200 nodes with 1,600 pods (minutes; NODES=200)
	@$(BIN)/python -m pytest -m scale --no-header tests/scale/test_two_hundred_nodes.py

evictions: $(VENV)/.dev  ## reclaim half of a full cluster at once, and kill the controller meanwhile (GPUS=400)
	@$(BIN)/python -m pytest -m scale --no-header tests/scale/test_many_evictions.py

kills: $(VENV)/.dev  ## kill -9 programs at random moments of a 64-pod gang's admission (KILLS=10)
	@$(BIN)/python -m pytest -m scale --no-header tests/scale/test_kills.py

hostile: $(VENV)/.dev  ## a tenant floods, forges, bombs and nests for MINUTES (1), and has 10,000 of everything; others' gangs start as before
	@MINUTES=$(or $(MINUTES),1) $(BIN)/python -m pytest -m scale --no-header tests/scale/test_hostile_tenant.py tests/scale/test_ten_thousand.py

fuzz: $(VENV)/.dev  ## fuzz every parser of others' bytes for MINUTES (5) on WORKERS (2) cores; SEED=n repeats a run, TARGET=name tries one
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) $(if $(TARGET),--target $(TARGET)) $(if $(INPUTS),--inputs $(INPUTS))

chaos: $(VENV)/.dev  ## faults of every kind against all of Fairlead, in virtual time: SEED=n (fresh), STEPS=300, RUNS=1, WORKERS=2, KUBERNETES=1.34
	@$(BIN)/python -m tests.chaos --workers $(WORKERS) --steps $(or $(STEPS),300) --runs $(or $(RUNS),1) --shrink $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

properties: $(VENV)/.dev  ## try the allocator's invariants on many more examples (EXAMPLES=20 times the usual; SEED=n repeats a run)
	@EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --no-header --timeout 3600 -m "property and not scale" $(if $(SEED),--hypothesis-seed=$(SEED)) tests/engine

replays: $(VENV)/.dev  ## record simulated days and decide again (REPLAYED=100000 decisions; half an hour)
	@REPLAYED=$(or $(REPLAYED),100000) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow --no-header -rP tests/history

soak: $(VENV)/.dev  ## thirty days (DAYS=30) of twenty queues in virtual time, with nodes that break and controllers that restart
	@SOAK_DAYS=$(or $(DAYS),30) $(BIN)/python -m pytest -m scale --no-header tests/engine/test_soak.py

decisions: $(VENV)/.dev  ## compare 120,000 decisions with their record (minutes; RECORD=1 writes it again, ONLY=source)
	@$(BIN)/python -m tests.support.decisions $(if $(RECORD),record,compare) tests/support/data/decisions.txt $(if $(ONLY),--only $(ONLY))

gpu: $(VENV)/.dev  ## try everything on this machine's NVIDIA GPU, without a cluster: SETTINGS=yes, ROOTFS=dir, DRIVER_ROOT=dir, RECORD=file, NVIDIA_DRIVER=file, STANDIN=yes
	@$(BIN)/python -m tests.hardware $(if $(SETTINGS),--settings) $(if $(ROOTFS),--rootfs $(ROOTFS)) $(if $(DRIVER_ROOT),--driver-root $(DRIVER_ROOT)) $(if $(RECORD),--record $(RECORD)) $(if $(NVIDIA_DRIVER),--nvidia-driver $(NVIDIA_DRIVER)) $(if $(STANDIN),--standin)

e2e: $(VENV)/.dev  ## the cases of the demo on a sandbox, or on KUBECONFIG=file, with REQUESTS=none on small nodes; DRIVER=gpu.nvidia.com, KUBERNETES=1.34
	@$(BIN)/python -m pytest e2e $(if $(KUBECONFIG),,-n $(TESTERS) --dist loadfile --no-header) $(if $(DRIVER),--driver $(DRIVER)) $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG)) $(if $(REQUESTS),--requests $(REQUESTS))

manifests: $(VENV)/.tools  ## write the dashboards, and render manifests/base and the CRDs from manifests/chart and lib/fairlead/api
	@$(BIN)/python -m monitoring
	@$(BIN)/python tools/render.py

screenshots: $(VENV)/.dev  ## take the pictures of docs/ui.md from a cluster with work on it: needs chromium (ALL=folder: every page at every width)
	@$(BIN)/python tools/screenshots.py $(if $(ALL),--all $(ALL))

image:  ## build the image with docker, podman or buildah, whichever is there (IMAGE=name:tag)
	@for tool in docker podman buildah; do \
	  if command -v $$tool > /dev/null; then exec $$tool build --tag $(or $(IMAGE),fairlead:$(VERSION)) .; fi; done; \
	  echo "no docker, podman or buildah in PATH: make image-archive needs none of them" >&2; exit 1

image-archive: $(VENV)/.dev  ## write the image as an OCI archive, without docker or root (ARCHIVE=dist/fairlead.tar, IMAGE=name:tag; Linux on x86-64)
	@$(BIN)/python tools/image_archive.py build $(or $(ARCHIVE),dist/fairlead.tar) $(if $(IMAGE),--name $(IMAGE))

e2e-kind: $(VENV)/.dev $(VENV)/.tools  ## the seven cases on a kind cluster of its own: needs docker and kind
	@PATH="$(abspath $(BIN)):$$PATH" PYTHON=$(BIN)/python e2e/kind/run.sh

# What a tag would be released as, without publishing; the same commit gives the same wheel, sdist and SBOM on every machine.
dist: $(VENV)/.dev $(VENV)/.tools  ## build wheel, sdist, chart, SBOM and krew's plugin into dist/ (docs/releases.md; REPOSITORY=URL is where the plugin is fetched)
	@$(BIN)/python tools/release.py dist dist $(if $(REPOSITORY),--repository $(REPOSITORY))

release-notes: $(VENV)/.dev  ## print the release notes of TAG=v0.1.0 from CHANGELOG.md, or why that tag cannot be released
	@$(BIN)/python tools/release.py notes $(or $(TAG),v$(VERSION))

lint: $(VENV)/.dev  ## ruff, mypy --strict, the import contracts
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache > .lint-imports.log || (cat .lint-imports.log; rm -f .lint-imports.log; exit 1)
	@rm -f .lint-imports.log

format: $(VENV)/.dev  ## let ruff rewrite what it can
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

bench: $(VENV)/.dev  ## print the figures as tables (BENCH="cel allocator", JSON=file; of one also OPTIONS="--nodes=10")
	@$(BIN)/python -m benchmarks $(BENCH) $(if $(JSON),--json $(JSON)) $(if $(OPTIONS),-- $(OPTIONS))

# lock/image.txt: what the three programs import, in the versions of lock/runtime.txt, and what builds the wheel.
# lock/otel.txt: what an image with traces has besides, in the versions that tests use.
lock: $(VENV)/.dev  ## rewrite the lock files from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --group build --custom-compile-command "make lock" pyproject.toml -o lock/runtime.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --group dev --extra otel --custom-compile-command "make lock" -c lock/runtime.txt pyproject.toml -o lock/dev.txt
	@$(BIN)/python tools/image_requirements.py | $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --custom-compile-command "make lock" -c lock/runtime.txt - -o lock/image.txt
	@$(BIN)/python tools/image_requirements.py otel | $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --custom-compile-command "make lock" -c lock/dev.txt - -o lock/otel.txt
	@$(BIN)/python tools/image_archive.py lock

clean:  ## remove what make made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .sandbox .fuzz
