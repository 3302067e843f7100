.PHONY: setup run test test-slow test-wheel test-vault test-cluster test-browser test-gpu test-simulated-gpu soak attack check gpu-day keys sample-report docs mutants pictures audit clean

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
unexport PYTHONDONTWRITEBYTECODE  # else every process compiles what it imports anew

setup: $(STAMP) $(STAMP)-dev

# uv installs torch and torchvision as the matched pair in the pins. What is installed is a wheel, as users have it; its
# packages lie below `holdout`, where no module of a user can hide them.
$(STAMP): pyproject.toml constraints.txt $(shell git ls-files holdout search spaces trainables)
	@echo "Installing Holdout and what it needs into .venv: several GB, and minutes …"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -x $(BIN)/uv || $(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --reinstall-package holdout-dml ".[search]"
	touch $@
	@echo "Holdout is installed. \`$(BIN)/holdout run quickstart\` runs a first search; \`$(BIN)/holdout doctor\` checks this machine."

# A dependency group: dev for every target but `run`, which needs no tool of the tests, and docs and mutants for theirs.
# With it the installation becomes editable. open-metric-learning asks for NumPy 1 and runs with 2, so it comes alone; what
# its losses, miners and samplers import is in the group. All packages are compiled, which takes a minute: otherwise every
# worker compiles what it imports at the same time.
$(STAMP)-%: $(STAMP)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --group $* --editable ".[search]"
	$(if $(filter dev,$*),$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --no-deps open-metric-learning)
	touch $@

run: $(STAMP)
	@echo "A first search of three losses on drawn images: one to two minutes on two idle cores"
	$(BIN)/holdout run quickstart

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# PyTorch's CUDA is replaced by a simulation in the whole process.
ON_SIMULATED_GPU := OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/pytest -p support.simulated_gpu

# Two processes, each with whole modules, those that take longest first. Those on the simulated GPU run beside them; their
# output comes last. A test that hangs fails after ten minutes.
test: check
	@mkdir -p build
	$(ON_SIMULATED_GPU) -m "simulated_gpu and not slow" --timeout 600 tests/simulated_gpu > build/simulated-gpu.log 2>&1 & beside=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --no-loadscope-reorder --timeout 600; rest=$$?; \
	wait $$beside; simulated=$$?; cat build/simulated-gpu.log; exit $$((rest || simulated))

# MLflow, its PostgreSQL and a Ray cluster of two nodes, each of them broken while a search runs; a campaign killed in a
# fold; and a trial whose machines die repeatedly.
test-cluster: setup
	$(BIN)/pytest -m cluster

# Fault injection, hundreds of seconds per scenario: real searches in which drivers, workers, nodes, services and
# disks are broken FAULTS times at random moments drawn from SEED. Then their files and MLflow are checked.
soak: setup
	PYTHONPATH=tests $(BIN)/python -m soak --seed $(or $(SEED),0) --faults $(or $(FAULTS),120) $(if $(SCENARIO),--scenario $(SCENARIO))

# Hostile input of every kind and mutations of a finished search, ATTACKS of them drawn from SEED.
attack: setup
	SEED=$(or $(SEED),0) ATTACKS=$(or $(ATTACKS),300) $(BIN)/pytest tests/hostile/test_drawn.py

# Tests that take many seconds each, such as exporting a network of 201 layers in every format.
test-slow: setup
	$(BIN)/pytest -m "slow and not simulated_gpu"

# A wheel in environments of its own, light and whole: minutes, and gigabytes unless uv has the packages in its cache.
test-wheel: setup
	$(BIN)/pytest -m wheel tests/wheel

# A vault of another account and behind sshd: as root, which makes two accounts and removes them (`apt-get install
# openssh-server`).
test-vault: setup
	$(BIN)/pytest -m accounts -rs tests/vault/test_accounts.py

# Pages in Debian's Chromium (`apt-get install chromium`), one of them while a search runs.
test-browser: setup
	$(BIN)/pytest -m browser

# Tests that need a GPU. Nothing is installed: they need PyTorch and pytest, but not Ray, Optuna or MLflow.
test-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m pytest tests/gpu --confcutdir tests/gpu -o filterwarnings=error -rs

# Whole trainings on a GPU that PyTorch's CPU kernels compute, with every operation checked: minutes. `tests/gpu` runs there
# too.
test-simulated-gpu: setup
	$(ON_SIMULATED_GPU) -m "" tests/simulated_gpu tests/gpu

# On a machine with a GPU: all measurements of docs/gpu.md in at most 12 minutes, as JSON lines and one page in build/gpu-day.
# Nothing is installed, as for test-gpu. REHEARSE=--rehearse makes everything tiny, to check on a CPU that it runs.
gpu-day:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m benchmarks.gpu_day build/gpu-day $(REHEARSE)

# docs/keys.md, from the classes that read a search file.
keys: setup
	PYTHONPATH=. $(BIN)/python docs/make_keys.py

# The report of a finished `quickstart`, for a site or to send: five megabytes, so it is not stored here. `make docs` includes
# it.
sample-report: setup
	$(BIN)/holdout run quickstart --runs build/sample
	cp build/sample/quickstart/report.html docs/sample-report.html

# Built from scratch, because cached pages repeat no warnings. Neither the build nor the site needs a network.
docs: setup $(STAMP)-docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet docs build/docs
	@echo build/docs/index.html

# Draw the pages' pictures from the report of the finished search NAME (`groceries` or `quickstart`) in the folder RUNS, with
# Debian's Chromium.
pictures: setup
	PYTHONPATH=tests $(BIN)/python -m benchmarks.pictures $(or $(RUNS),runs) $(or $(NAME),quickstart)

# Check the pinned versions against known advisories. `AUDIT=osv make audit` uses api.osv.dev instead of PyPI. If the
# service cannot be reached it fails, and prints the date of the pins.
audit: setup
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && $(BIN)/uv pip install --quiet --python build/audit/bin/python pip-audit; }
	build/audit/bin/pip-audit --strict --disable-pip --no-deps --vulnerability-service $(or $(AUDIT),pypi) --requirement constraints.txt \
		|| { echo "The versions were pinned on $$(git log -1 --format=%as -- constraints.txt)."; exit 1; }

# Mutation testing of the modules that decide, with their own tests. All 9,000 mutations take about 13 hours on two cores;
# MUTANTS='*__mutmut_3' selects the third of each function. `.venv/bin/mutmut results` lists those that no test detected,
# `.venv/bin/mutmut show NAME` prints one.
mutants: export OMP_NUM_THREADS = 1
mutants: setup $(STAMP)-mutants
	PYTHONPATH=. $(BIN)/mutmut run --max-children 2 $(if $(MUTANTS),'$(MUTANTS)')

clean:
	rm -rf .venv build mutants runs
