.PHONY: setup run test test-slow test-cluster test-browser test-gpu soak check bench-losses bench-complexity bench-rankings bench-metrics bench-input bench-embed bench-overhead bench-anytime bench-proxies bench-start bench-scale bench-slots bench-checkpoints bench-statistics bench-gallery bench-initial-proxies bench-stack bench-gpu bench-precision bench-kmeans docs mutants pictures audit clean

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

setup: $(STAMP)

# uv takes torch and torchvision as the matched pair that the pins name. It compiles what it installs: every worker would
# else compile what it imports, and again each time where Python may not write bytecode.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -x $(BIN)/uv || $(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable . --group dev
	touch $@

# A dependency group of its own, such as docs.
$(STAMP)-%: $(STAMP)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --group $*
	touch $@

run: setup
	$(BIN)/holdout run quickstart

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two processes: one has the tests that share a Ray cluster, which wait more than they compute, the other begins the rest.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --no-loadscope-reorder

# PostgreSQL, MLflow and a Ray cluster of two nodes, each of them broken while a search runs; a campaign killed in a fold;
# a driver killed twenty times on either database, and machines that die again and again under one trial.
test-cluster: setup
	$(BIN)/pytest -m cluster

# Hundreds of seconds a scenario: real searches in which drivers, trainers, nodes, services, disks and clocks are broken at
# moments that SEED draws, FAULTS times in all; then what they left is read from its files and databases.
soak: setup
	PYTHONPATH=tests $(BIN)/python -m soak --seed $(or $(SEED),0) --faults $(or $(FAULTS),120) $(if $(SCENARIO),--scenario $(SCENARIO))

# What takes many seconds for one test, such as a network of 201 layers in every form.
test-slow: setup
	$(BIN)/pytest -m slow

# Pages in Debian's Chromium (`apt-get install chromium`), one of them while a search runs.
test-browser: setup
	$(BIN)/pytest -m browser

# What only a GPU shows. Nothing is installed: it runs where there is PyTorch and pytest, without Ray, Optuna or MLflow.
test-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m pytest tests/gpu --confcutdir tests/gpu -o filterwarnings=error -rs

bench-losses: setup
	$(BIN)/python -m benchmarks.losses

# Tables 2 and 3 of Multi Proxy Anchor.
bench-complexity: setup
	$(BIN)/python -m benchmarks.complexity

bench-rankings: setup
	$(BIN)/python -m benchmarks.rankings

bench-metrics: setup
	$(BIN)/python -m benchmarks.metrics

bench-kmeans: setup
	$(BIN)/python -m benchmarks.kmeans $(SIZES)

bench-input: setup
	$(BIN)/python -m benchmarks.input $(IMAGES)

bench-embed: setup
	$(BIN)/python -m benchmarks.embed $(IMAGES)

bench-overhead: setup
	$(BIN)/python -m benchmarks.overhead

# Small trainings together on one device, beside one at a time; on a GPU where there is one.
bench-stack: setup
	$(BIN)/python -m benchmarks.stack

bench-checkpoints: setup
	$(BIN)/python -m benchmarks.checkpoints

bench-start: setup
	$(BIN)/python -m benchmarks.start

bench-scale: setup
	PYTHONPATH=tests $(BIN)/python -m benchmarks.scale

bench-slots: setup
	PYTHONPATH=tests $(BIN)/python -m benchmarks.slots

# The simulations behind the statistics and the samplers, with one thread each: minutes a line.
bench-statistics: export OMP_NUM_THREADS = 1
bench-statistics: setup
	$(BIN)/python -m benchmarks.statistics.pairs
	$(BIN)/python -m benchmarks.statistics.intervals
	$(BIN)/python -m benchmarks.statistics.classes
	$(BIN)/python -m benchmarks.statistics.confirmation
	$(BIN)/python -m benchmarks.statistics.edges
	$(BIN)/python -m benchmarks.statistics.importances
	$(BIN)/python -m benchmarks.statistics.samplers
	$(BIN)/python -m benchmarks.statistics.rungs

# With one thread, as a trial has: six minutes on Omniglot's 136 characters.
bench-gallery: export OMP_NUM_THREADS = 1
bench-gallery: setup
	$(BIN)/python -m benchmarks.gallery $(IMAGES)

# With one thread: minutes a folder.
bench-initial-proxies: export OMP_NUM_THREADS = 1
bench-initial-proxies: setup
	$(BIN)/python -m benchmarks.initial_proxies $(IMAGES) $(LOSSES)

# One GPU; nothing is installed, as for test-gpu. On a CPU all is small, and only shows that it runs.
bench-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m benchmarks.gpu $(PARTS)

# With one thread: bfloat16 and float32, the same seeds.
bench-precision: export OMP_NUM_THREADS = 1
bench-precision: setup
	$(BIN)/python -m benchmarks.precision $(IMAGES) $(SEEDS)

bench-anytime: setup
	$(BIN)/python -m benchmarks.anytime $(IMAGES) $(RUNS)

bench-proxies: setup
	$(BIN)/holdout campaign benchmarks/proxies.yaml

# From scratch, since a page that is not read again warns of nothing. The site needs no network, to make or to read.
docs: setup $(STAMP)-docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet docs build/docs
	@echo build/docs/index.html

# The README's pictures, from the report of a finished `quickstart` in the folder RUNS, in Debian's Chromium.
pictures: setup
	PYTHONPATH=tests $(BIN)/python -m benchmarks.pictures $(or $(RUNS),runs)

# Known advisories against the pinned versions. `AUDIT=osv make audit` asks api.osv.dev instead of PyPI; where it cannot
# ask, it fails, and says how old the pins are.
audit: setup
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && $(BIN)/uv pip install --quiet --python build/audit/bin/python pip-audit; }
	build/audit/bin/pip-audit --strict --disable-pip --no-deps --vulnerability-service $(or $(AUDIT),pypi) --requirement constraints.txt \
		|| { echo "The versions were pinned on $$(git log -1 --format=%as -- constraints.txt)."; exit 1; }

# The modules that decide, changed in one place at a time: the tests beside them should notice. All 9,000 changes take
# some 13 hours on two cores; MUTANTS='*__mutmut_3' is the third of each function. `.venv/bin/mutmut results` names those
# that nothing noticed, `.venv/bin/mutmut show NAME` prints one.
mutants: export OMP_NUM_THREADS = 1
mutants: setup $(STAMP)-mutants
	PYTHONPATH=. $(BIN)/mutmut run --max-children 2 $(if $(MUTANTS),'$(MUTANTS)')

clean:
	rm -rf .venv build mutants runs
