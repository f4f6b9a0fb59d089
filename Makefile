# Two commands do everything: `make demo` and `make test`. Both make .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo docs test check matrix lint bench clean chromium
# the whole run ends after 25 minutes, whatever hangs
LIMIT := $(shell command -v timeout >/dev/null 2>&1 && echo timeout --kill-after=30 1500)

# the demo trains on the digits of scikit-learn, which the extra lab brings
$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[lab]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
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

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests bench docs/hooks conftest.py
	$(BIN)/ruff format --check -q src tests bench docs/hooks conftest.py
	$(BIN)/lint-imports
	$(BIN)/mypy

test: lint chromium
	$(LIMIT) $(BIN)/pytest -n 2 --dist loadfile $(PYTEST) src tests

# for the person who edits: the rooms that were changed since the last commit, without the tests marked slow
check: $(VENV)/.dev
	$(BIN)/ruff check src tests bench
	$(LIMIT) $(BIN)/pytest -n 2 --dist loadfile -m "not slow" $(PYTEST) $$($(BIN)/python tests/changed_rooms.py)

# the test command as other processors, thread counts and orders would run it; hours on two cores
matrix:
	for isa in "" ONEDNN_MAX_CPU_ISA=AVX2; do for aten in "" ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2; do \
	  for threads in 1 2; do for seed in 1 2 3; do echo "== $$isa $$aten threads=$$threads shuffle=$$seed"; \
	  env $$isa $$aten OMP_NUM_THREADS=$$threads $(MAKE) --no-print-directory test PYTEST="--shuffle $$seed" || exit 1; \
	done; done; done; done

bench: $(VENV)/.dev
	for f in bench/[a-z]*.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
