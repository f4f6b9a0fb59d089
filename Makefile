# Two commands do everything: `make demo` and `make test`. Both make .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export PYTHONDONTWRITEBYTECODE :=   # dozens of processes import the package: let the first one cache it

.PHONY: demo docs test test-slow test-gpu check matrix lint bench clean chromium

$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml lab/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]" -e ./lab
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/netvitals demo

# the documentation as a folder that opens without a server or a network: site/index.html
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# the screenshot tests need a browser; where none can be installed they are skipped and say so
chromium:
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 \
	  || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "chromium could not be installed: the screenshot tests will be skipped"

CHECKED := src lab tests bench docs/hooks conftest.py
TESTED := src tests lab/src lab/tests
RUN := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev
	@$(BIN)/ruff check -q $(CHECKED) && $(BIN)/ruff format --check -q $(CHECKED) && echo "lint: style passed"
	@$(BIN)/lint-imports >$(VENV)/imports.log 2>&1 & imports=$$!; $(BIN)/mypy; types=$$?; wait $$imports; \
	  failed=$$?; [ $$failed = 0 ] && echo "lint: imports passed" || cat $(VENV)/imports.log; exit $$((types + failed))

test: $(VENV)/.dev chromium
	@echo "1/2 lint and types"
	@$(MAKE) --no-print-directory lint
	@echo "2/2 tests"
	@$(RUN) -m "not slow" $(PYTEST) $(TESTED)

# what takes minutes: whole studies, every model and every method; run it before you resolve an issue on an estimator
test-slow: $(VENV)/.dev chromium
	$(RUN) -m slow $(PYTEST) $(TESTED)

# for a machine with a GPU; not run so far
test-gpu: $(VENV)/.dev
	$(BIN)/python -c "import torch; assert torch.cuda.is_available() or torch.backends.mps.is_available(), 'no GPU here'"
	$(BIN)/pytest -n 0 tests/stacks/test_devices.py tests/stacks/test_cuda_graphs.py tests/test_never_disturbs.py

# for the person who edits: the tests of the packages changed since the last commit
check: $(VENV)/.dev
	$(BIN)/ruff check $(CHECKED)
	$(RUN) -m "not slow" $(PYTEST) $$($(BIN)/python tests/changed_packages.py)

# the test command as other processors, thread counts and orders would run it; hours on two cores
matrix:
	for isa in "" ONEDNN_MAX_CPU_ISA=AVX2; do for aten in "" ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2; do \
	  for threads in 1 2; do for seed in 1 2 3; do echo "== $$isa $$aten threads=$$threads shuffle=$$seed"; \
	  env $$isa $$aten OMP_NUM_THREADS=$$threads $(MAKE) --no-print-directory test PYTEST="--shuffle $$seed" || exit 1; \
	done; done; done; done

bench: $(VENV)/.dev
	for f in bench/watching/watch.py bench/curvature/run.py bench/models/[a-z]*.py bench/forecasts/plateaus.py bench/forecasts/divergence.py bench/forecasts/skill.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
