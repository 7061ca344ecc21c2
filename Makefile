# Each command sets up the virtual environment first if it must.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests run in a process for each core and two more, up to four: others are more copies of torch than are worth it.
# Tests in a browser are left out of them: they play sound in real time, and share one browser.
BROWSER := tests/e2e/browser
WORKERS := -n auto --maxprocesses 4 --dist worksteal --ignore $(BROWSER)
TYPED := actors client engine kernels media protocols realtime testing
# Where it is set, each worker and each of the hundred servers they start would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-avx2 test-bare families quick fuzz fuzz-parsers peers lighthouse check format lines bench gpu clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up, start the server, stream a spoken conversation through it, show it pictures"
	@echo "make test    set up, run every test"
	@echo "make test-avx2, test-bare  the same as on a processor without AVX-512, and without a compiler"
	@echo "make families  every family that sees or hears against transformers, batched, in chunks, preempted, cached"
	@echo "make quick   a minute of tests: wire formats, sessions, SDK, HTTP; no model, process or real clock"
	@echo "make fuzz    every test again with new random examples"
	@echo "make fuzz-parsers  every parser for a minute, by coverage (Linux)"
	@echo "make peers   other projects' suites against a server of embedded models (downloads their packages once)"
	@echo "make lighthouse  every view of the console by Lighthouse, in both colour schemes and two widths (downloads it once)"
	@echo "make check   formatting, lint, types, import rules"
	@echo "make format  rewrite the sources in the house format"
	@echo "make lines   how large each room is"
	@echo "make gpu     on a machine with a CUDA GPU: check the Triton kernels and time them"
	@echo "make clean   remove the virtual environment and build products"

$(READY): pyproject.toml engine/checkpoints/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "sensorium needs Python 3.11 or newer; name it with: make PYTHON=python3.11"; exit 1; }
	@echo "setting up $(VENV), once: downloads torch and its companions, which takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e ./engine/checkpoints -e '.[serve,dev]'
	@touch $(READY)

# mypy and import-linter read the root as the package "sensorium" through this link.
build/typing/sensorium:
	@mkdir -p build/typing && ln -sfn ../.. $@

demo: $(READY)
	$(BIN)/python examples/demo.py

# Many tests work with real processes, sockets and clocks: what failed runs once more, alone, and what fails twice fails.
# Tests in a browser come last, one after the other: sound and pictures are in real time there.
AGAIN := --last-failed --last-failed-no-failures none
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) || \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(AGAIN) --ignore $(BROWSER)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(BROWSER) || \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(AGAIN) $(BROWSER)

# Kernels compiled for Haswell, and torch and oneDNN held to what that processor can do (in bfloat16, too).
test-avx2: $(READY)
	mkdir -p build/avx2
	HOME=$(CURDIR)/build/avx2 PATH=$(CURDIR)/tests/support/haswell:$(PATH) OMP_NUM_THREADS=1 \
	  ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest $(WORKERS)

# Everything that is installed but compilers: all kernels are torch's.
test-bare: $(READY)
	mkdir -p build/bare/bin
	find $(wildcard $(subst :, ,$(PATH))) -maxdepth 1 ! -type d ! -name '*cc' ! -name '*cc-[0-9]*' ! -name 'c[89]9*' \
	  -exec ln -sf -t build/bare/bin {} +
	HOME=$(CURDIR)/build/bare PATH=$(CURDIR)/build/bare/bin OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest $(WORKERS)

# What `make test` checks every way for one family of each rule.
families: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) --every-way tests/engine/models/multimodal

# Folders whose tests import no torch and wait for nothing, with a tenth of the random examples.
QUICK := $(addprefix tests/,protocols realtime client actors/config actors/http actors/runtime actors/transport \
  test_project.py test_texts.py)
quick: $(READY)
	OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest $(WORKERS) -m "not slow and not heavy" $(QUICK)

fuzz: $(READY)
	OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest $(WORKERS)

fuzz-parsers: $(READY)
	$(BIN)/python tests/fuzz/run.py --seconds 60

# Other projects' packages live in an environment of their own: they do not know sensorium, and it not them.
build/peers/.ready: tests/peers/requirements.txt
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

peers: $(READY) build/peers/.ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/peers/run.py $(SUITES)

# Lighthouse needs Node and Chromium, and no network once it is installed.
build/lighthouse/.ready: tests/lighthouse/package.json
	mkdir -p build/lighthouse && cp $< build/lighthouse/
	npm install --prefix build/lighthouse --no-audit --no-fund --loglevel=error
	@touch $@

lighthouse: $(READY) build/lighthouse/.ready
	cd tests && ../$(BIN)/python -m support.lighthouse

check: $(READY) build/typing/sensorium
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -m sensorium -m sensorium.__main__ $(foreach room,$(TYPED),-p sensorium.$(room))
	cd tests && ../$(BIN)/mypy --config-file ../pyproject.toml .
	cd examples && ../$(BIN)/mypy --config-file ../pyproject.toml .
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lines: $(READY)
	@$(BIN)/python tests/support/lines.py

gpu: $(READY)
	$(BIN)/python examples/benchmarks/gpu_kernels.py

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
