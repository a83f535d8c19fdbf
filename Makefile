# Two commands do everything: `make demo` and `make test`. Both set up what they need; a second run is fast.
# Needs: Debian 12 or alike with python3 (>= 3.11), python3-venv, gcc, make. Where Chromium is installed the page is tested in it; PostgreSQL likewise.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PROCESSES ?= $(shell nproc)
# The constraints hold for what pip builds with, too, which -c does not reach. Their path is relative: pip splits the
# variable at spaces.
PIP := PIP_CONSTRAINT=etc/constraints.txt $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
# Without bytecode files, each of the thousands of processes that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# More words for `make chaos`, `make machines`, `make fuzz` and `make bench-search`; ARGS='--help' lists them.
ARGS ?=

.PHONY: experiments demo test test-fast hostile onnx-suite gpu-candidates gpu-builds gpu-policies arm-root service seeds fuzz fuzz-boards chaos machines programs dist docs lint lock bench recheck bench-thesis bench-search bench-networks bench-records bench-fleet bench-deploy bench-rpc bench-crowd bench-zero-shot picture clean help

help:
	@echo 'make demo    tune two real networks at the same time on this machine (about 3 minutes, first run installs)'
	@echo 'make test    all tests, and 10,000 simulated seeds with faults (make seeds: only these, about two minutes)'
	@echo 'make test-fast   tests of pure code, without TVM (under a minute)'
	@echo 'make service boots machines with systemd, and types there what an operator types first, also by ssh (root; three minutes)'
	@echo 'make fuzz    a million hostile frames at a daemon (ARGS="--frames N --seed S": others)'
	@echo 'make hostile attacks by other users of this machine, by users and by clients: none may succeed (root; minutes)'
	@echo 'make chaos   a thousand daemons killed under 50 clients, and every other fault: docs/faults.md (an hour; ARGS too)'
	@echo 'make machines   fresh Debians, other CPUs in qemu, odd surroundings (root; an hour, goes on where it stopped; ARGS too)'
	@echo 'make programs   seven packages of others that use onnxruntime, with the runtime in its place (15 minutes, then one)'
	@echo "make onnx-suite   ONNX's own tests of operators, and old opsets (15 minutes; ARGS='--cases REGEX --details': some of them)"
	@echo 'make gpu-candidates   640 candidates for GPUs, on fake ones that find every race (half an hour; ARGS=--help)'
	@echo "make gpu-policies   the policies in the thesis' setting, on four fake GPUs and simulated (five minutes)"
	@echo "make gpu-builds   the time of builds for GPUs, without one (five minutes)"
	@echo 'make docs    the pages of docs/ as a site'
	@echo 'make dist    the files of a release, and a trial of them in an empty environment'
	@echo 'make picture records the pictures of the README and of docs/lab.md (six minutes; root; ARGS=demo or lab: only these)'
	@echo 'make lint    format, style, types, import contracts'
	@echo 'make lock    hashes of all packages, and the list of them (SBOM), after a change of etc/constraints.txt'
	@echo 'make bench   the numbers in benchmarks/RESULTS.md (about two hours)'
	@echo 'make recheck those numbers again that take under ten minutes each'
	@echo 'make bench-thesis   only the evaluation of the policies on this machine (about 45 minutes)'
	@echo 'make bench-networks   trained networks against ONNX Runtime, OpenVINO, ncnn and MNN (hours)'
	@echo 'make experiments     the experiments that come with it, with their jobs and hours'
	@echo 'make bench-records   what the record store costs and spares, and how fast it answers (two hours; PostgreSQL too, where installed)'
	@echo 'make bench-fleet   what a second machine brings, and a fleet in simulated time (half an hour; root)'
	@echo 'make bench-deploy   compiled networks in the runtime, beside ONNX Runtime: start, cost of a call, memory, lengths (an hour)'
	@echo 'make bench-rpc     boards: TVM programs, a network, faults (20 minutes)'
	@echo 'make bench-crowd   1,000 clients on 20 hosts (20 minutes; root, 24 GB of memory)'
	@echo 'make bench-zero-shot   how good schedules are without a search, after autosched experiment run experiments/zoo.toml (two hours)'
	@echo 'make bench-search   only how search methods compare on single tasks (hours; ARGS=--quick: two minutes)'
	@echo 'make clean   remove the virtual environment and caches'

demo: $(VENV)/.runtime
	$(BIN)/autosched demo

test: $(VENV)/.development
	$(BIN)/python -m pytest -q -n $$(($(PROCESSES) + 2)) tests/unit tests/scenarios tests/simulation tests/integration tests/hostile  # two more than cores: many wait
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests/e2e  # each is busy on one core at a time
	@$(MAKE) --no-print-directory seeds

test-fast: $(VENV)/.development
	$(BIN)/python -m pytest -q -n $(PROCESSES) --fast tests/unit tests/scenarios

hostile: $(VENV)/.development
	$(BIN)/python -m pytest -q tests/hostile

arm-root: $(VENV)/.development
	$(BIN)/python tests/arm_root.py

service: $(VENV)/.development
	$(BIN)/python -m pytest -q tests/system

onnx-suite: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python -m onnx_suite $(ARGS)

gpu-candidates: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python -m fakecuda.candidates $(ARGS)

gpu-policies: $(VENV)/.development
	$(BIN)/python benchmarks/gpu_policies.py $(ARGS)

gpu-builds: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python -m fakecuda.build_times $(ARGS)

seeds: $(VENV)/.runtime
	$(BIN)/python -m autosched.sim --seeds 10000 --processes $(PROCESSES)
	$(BIN)/python -m autosched.sim --seeds 1000 --hosts --processes $(PROCESSES)

dist: $(VENV)/.development
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m build --no-isolation --wheel --outdir dist runtime
	$(PYTHON) -m venv --clear $(VENV)/released
	@$(PIP) --python $(VENV)/released install --require-hashes -r etc/locks/runtime.txt
	@$(PIP) --python $(VENV)/released install --no-deps dist/autosched-*.whl
	cd $(VENV) && released/bin/autosched doctor
	$(PYTHON) -m venv --clear $(VENV)/deployed
	@$(PIP) --python $(VENV)/deployed install dist/autosched_runtime-*.whl
	cd $(VENV) && deployed/bin/python -c 'import autosched_runtime.network; print("autosched_runtime", autosched_runtime.__version__)'

docs: $(VENV)/.runtime
	$(PIP) install -e '.[docs]'
	$(BIN)/sphinx-build -q -W -b html docs docs/_site
	@echo '== open docs/_site/index.html'

picture: $(VENV)/.development
	$(BIN)/python tests/pictures.py $(ARGS)

lint: $(VENV)/.development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/lint-imports

fuzz: $(VENV)/.development
	$(BIN)/python tests/fuzz.py $(ARGS)

fuzz-boards: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python tests/fuzz_boards.py $(ARGS)

chaos: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

programs: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python -m foreign_programs $(ARGS)

machines: $(VENV)/.development
	PYTHONPATH=tests $(BIN)/python -m machines $(ARGS)

bench: $(VENV)/.development
	$(BIN)/python benchmarks/run.py

recheck: $(VENV)/.development
	$(BIN)/python benchmarks/run.py --recheck

bench-thesis: $(VENV)/.development
	$(BIN)/python benchmarks/run.py thesis

bench-networks: $(VENV)/.rivals
	$(BIN)/python benchmarks/run.py trained_networks

experiments: $(VENV)/.development
	for file in $$(grep -l "\[parameters\]" experiments/*.toml); do $(BIN)/autosched experiment check $$file; $(BIN)/autosched experiment check --quick $$file; done; true

bench-fleet: $(VENV)/.development
	$(BIN)/python benchmarks/run.py fleet fleet_scale

bench-deploy: $(VENV)/.development
	$(BIN)/python benchmarks/deploy.py $(ARGS)
	$(BIN)/python benchmarks/lengths.py

bench-rpc: $(VENV)/.development
	$(BIN)/python benchmarks/boards.py $(ARGS)

bench-crowd: $(VENV)/.development
	$(BIN)/python benchmarks/fleet_crowd.py

bench-records: $(VENV)/.development
	$(BIN)/python benchmarks/run.py records store_cost known_again round_trip latency_goals

bench-zero-shot: $(VENV)/.development
	$(BIN)/python benchmarks/zero_shot.py
	$(BIN)/python benchmarks/starter_book.py
	$(BIN)/python benchmarks/zero_shot_tuning.py
	$(BIN)/python benchmarks/search_quality.py --ranked

bench-search: $(VENV)/.development
	$(BIN)/python benchmarks/search_quality.py $(ARGS)

$(VENV)/.created:
	@echo '== creating a virtual environment in $(VENV)'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'autosched needs Python 3.11 or newer; this is' `$(PYTHON) --version`. Choose another with: make PYTHON=python3.12 demo; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo 'No venv module. On Debian: apt-get install python3-venv'; exit 1; }
	@touch $@

# pip compares each file with the hashes of the lock before it installs one.
$(VENV)/.runtime: $(VENV)/.created pyproject.toml etc/locks/runtime.txt
	@echo '== installing autosched and TVM (about 190 MB to download the first time)'
	@$(PIP) install --require-hashes -r etc/locks/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.development: $(VENV)/.runtime etc/locks/development.txt
	@echo '== installing what the tests need'
	@$(PIP) install --require-hashes -r etc/locks/development.txt
	@touch $@

# The versions are those of etc/constraints.txt; the hashes are those of all their files on PyPI, for every platform. The
# list of packages (SBOM) is that of an environment that is made from the lock.
LOCK := printf 'hatchling\neditables\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-config --no-annotate --custom-compile-command 'make lock' \
  --constraints etc/constraints.txt --extra tvm --extra onnxruntime --extra tui
lock: $(VENV)/.created
	@$(PIP) install uv cyclonedx-bom
	$(LOCK) pyproject.toml - --output-file etc/locks/runtime.txt
	$(LOCK) --extra dev pyproject.toml - --output-file etc/locks/development.txt
	$(PYTHON) -m venv --clear --without-pip $(VENV)/locked
	@$(PIP) --python $(VENV)/locked install --require-hashes -r etc/locks/runtime.txt
	$(BIN)/cyclonedx-py environment $(VENV)/locked --pyproject pyproject.toml --output-reproducible --output-file etc/locks/autosched.cdx.json

# pnnx without its dependencies: only its converter is used, which needs no PyTorch.
$(VENV)/.rivals: $(VENV)/.development
	@echo '== installing OpenVINO, ncnn and MNN'
	@$(PIP) install -e '.[tvm,onnxruntime,tui,dev,rivals]'
	@$(PIP) install --no-deps pnnx
	@touch $@

clean:
	rm -rf $(VENV) docs/_site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
