# make demo: a job on each target, right and safe, and a planted race that is found.  make test: lint and tests.
# make types: mypy of the whole package, a minute in a fresh checkout.
# make test-full: whole sets of cases, of which make test runs a sample.
# make test-programs: tests that start programs (kernbench itself from the command line, compilers).
# make test-doors: programs of torch and Triton, and all that nvcc builds.
# make test-ray: sweeps and checks on two nodes of a Ray cluster.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# processes of the tests
JOBS   ?= 2

# tiles are small: BLAS threads only get in each other's way
export OPENBLAS_NUM_THREADS ?= 1
# every process of the tests would compile all sources again where Python is told to keep no bytecode
export PYTHONDONTWRITEBYTECODE :=

# tests of the checks and analyses that `make coverage` measures; fewer for a quick look: make coverage MEASURED=tests/npu.
# tests/safety/test_watchdog.py is left out: while coverage traces, one of its tests waits for ever.
MEASURED ?= $(addprefix tests/safety/test_,safety.py timed_order.py) \
	$(addprefix tests/mesh/test_,deadlocks.py findings.py memory.py outputs.py) tests/npu \
	$(addprefix tests/ptx/,emulator validation)

# a step that fails fails its recipe, wherever it stands in a line
.SHELLFLAGS := -ec

.PHONY: demo test types test-full test-programs test-doors test-ray coverage docs test-gpu calibrate bench bench-full install clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "kernbench needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@echo 'installing kernbench and what it needs into $(VENV): a minute or two, once'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python tools/demo.py

# loops that take long to compile are compiled before the tests begin, once for all their processes
test-full: SETS = --full
test test-full: $(STAMP)
	$(BIN)/ruff check && $(BIN)/ruff format --check
	@$(BIN)/python tools/compile_loops.py mesh npu & loops=$$!; $(BIN)/python tools/compile_loops.py ptx; wait $$loops
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(SETS)

# apart from the tests: of a fresh checkout it takes a tenth of the seconds that both take, later hardly any (ADR 131)
types: $(STAMP)
	MYPY_NUM_WORKERS=$(JOBS) $(BIN)/mypy

# what starts programs takes as long as a quarter of the other tests: apart, so that those answer soon
test-programs: $(STAMP)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --programs

# programs of torch and Triton, in an environment of its own. A plain `torch` would come with gigabytes of CUDA packages;
# this release is the CPU build where one is to be had (TORCH=torch TRITON=triton==3.6.0 tests others). Where they cannot
# be installed, in INSTALL_SECONDS at most, the tests are left out with the reason, and that is no failure
DOORS  ?= .venv-doors
TORCH  ?= torch==2.13.0
TRITON ?= triton
INSTALL_SECONDS ?= 900
DOORS_SECONDS   ?= 1800
DOORS_TESTS     ?= tests/ptx/doors/frontends tests/torch 'tests/test_tutorials.py::test_the_document_does_what_it_says[tutorial-triton]' \
	'tests/test_tutorials.py::test_the_document_does_what_it_says[tutorial-cuda]' tests/ptx/doors/driver/test_cuda_programs.py tests/ptx/emulator/test_libraries.py
test-doors: | $(DOORS)/bin/python
	@if $(MAKE) --no-print-directory $(DOORS)/.installed; then \
	    timeout $(DOORS_SECONDS) $(DOORS)/bin/pytest -p no:xdist -rs $(DOORS_TESTS); \
	else \
	    echo 'SKIPPED: torch and Triton cannot be installed here ($(TORCH) $(TRITON)); their tests were left out'; \
	fi

$(DOORS)/bin/python:
	$(PYTHON) -m venv $(DOORS)

$(DOORS)/.installed: pyproject.toml | $(DOORS)/bin/python
	@echo 'installing torch and Triton beside kernbench into $(DOORS): minutes, once'
	timeout $(INSTALL_SECONDS) $(DOORS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' '$(TORCH)' '$(TRITON)'
	@$(DOORS)/bin/python -m pip install --quiet --disable-pip-version-check 'cuda-bindings>=13' \
	    || echo 'cuda-bindings cannot be installed here: tests that call the driver through it are left out'
	touch $(DOORS)/.installed

# sweeps and checks on two nodes of a Ray cluster, of which one dies; Ray is in an environment of its own, as tests of
# .venv ask what kernbench says without it
RAY       ?= .venv-ray
RAY_TESTS ?= tests/cli/commands/test_cluster.py
test-ray: $(RAY)/.installed
	$(RAY)/bin/pytest -p no:xdist -rs $(RAY_TESTS)

$(RAY)/.installed: pyproject.toml
	$(PYTHON) -m venv $(RAY)
	@echo 'installing Ray beside kernbench into $(RAY): a minute or two, once'
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,ray]'
	touch $(RAY)/.installed

# lines and branches of the checkers and of the analyses of PTX programs that their tests reach; pyproject.toml lists them
coverage: $(STAMP)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --cov --cov-report=term --cov-report=html:out/coverage $(MEASURED)

# the documents as a site under out/site; the first time, what builds it is installed. --quiet would silence --strict
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'open out/site/index.html'

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $(VENV)/.docs

# where a GPU is, its own Python with cuda-bindings runs the tests as it is: no environment is built, nothing installed
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -rs -W 'ignore::pytest.PytestConfigWarning' tests/ptx/gpu

# where a GPU is: its microbenchmarks, the figures of its file fitted from them, and the page docs/gpu-calibration.md
GPU ?= h200
calibrate:
	mkdir -p out benchmarks/calibration/data
	PYTHONPATH=src $(PYTHON) -m benchmarks.calibration measure out/$(GPU).jsonl
	PYTHONPATH=src $(PYTHON) -m benchmarks.calibration fit out/$(GPU).jsonl src/kernbench/ptx/gpus/$(GPU).toml docs/gpu-calibration.md
	cp out/$(GPU).jsonl benchmarks/calibration/data/$(GPU).jsonl

bench: $(STAMP)
	$(BIN)/python benchmarks/mesh_speed.py
	$(BIN)/python benchmarks/timing_speed.py
	$(BIN)/python benchmarks/ptx_speed.py

bench-full: $(STAMP)
	$(BIN)/python benchmarks/mesh_speed.py
	$(BIN)/python benchmarks/timing_speed.py --full
	$(BIN)/python benchmarks/ptx_speed.py
	$(BIN)/python benchmarks/chunk_output_speed.py
	$(BIN)/python benchmarks/chunk_output_mutants.py

clean:
	rm -rf $(VENV) $(DOORS) $(RAY) .coverage build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
