# Two commands are enough: `make lab` to look, `make test` to check. Both set up .venv when it is missing, stale or broken.

PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_INDEX ?=
TRAIN_ARGS ?= tatoeba-small
TRANSFORMERS := $(shell sed -n 's/.*"\(transformers>=[^"]*\)".*/\1/p' pyproject.toml)
PINNED := $(shell sed -n 's/^transformers==//p' constraints.txt)
VERSIONS ?= $(shell echo '$(TRANSFORMERS)' | sed 's/.*>=\([^,]*\),.*/\1/; s/^[0-9]*\.[0-9]*$$/&.0/') $(PINNED) newest
APP_PORT ?= 8866
TEST_JOBS ?= 2
GPU_OUT ?= build/gpu

BIN := .venv/bin
# Modules are compiled when they are first imported, and then kept, not all of them here: half the time.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --constraint .venv/constraints.txt
EXTRAS := test
say = @printf '\n== %s\n' "$(1)"

# What .venv was made from: a change of any of it installs again.
WANTED := torch $(TORCH) $(TORCH_INDEX) extras $(EXTRAS) files $(shell cat pyproject.toml constraints.txt | cksum)
# It works when, isolated from this folder, torch loads and fastdecode_lib is the one of this folder.
WORKS := $(BIN)/python -I -c "import os, torch, importlib.util as u; \
assert os.path.samefile(u.find_spec('fastdecode_lib').origin, 'fastdecode_lib/__init__.py')"

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help lab app test lint types tests soak test-versions test-oldest notebooks notebooks-save format figures site gpu train clean install

help: ## list the targets
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-18s %s\n", $$1, $$2 }'
	@echo
	@echo "Options: LAB_ARGS, APP_ARGS, TEST_ARGS, TRAIN_ARGS, BENCH_ARGS are passed on, as in: make test TEST_ARGS='-k greedy'"
	@echo "  PYTHON=PATH       a Python of 3.11 or newer"
	@echo "  GPU_PYTHON=PATH   a Python for make gpu that has all it needs, instead of .venv's; GPU_OUT, GPU_ARGS: where to, what"
	@echo "  TEST_JOBS=NUMBER  tests and notebooks side by side, instead of $(TEST_JOBS)"
	@echo "  VERSIONS=LIST     transformers for make test-versions, instead of $(VERSIONS)"
	@echo "  APP_PORT=NUMBER   another port for make app than $(APP_PORT)"
	@echo "  TORCH=VERSION     another torch than $(TORCH)"
	@echo "  TORCH_INDEX=URL   where torch comes from: https://download.pytorch.org/whl/cpu has the small build"
	@echo "                    without CUDA, .../whl/cu130 one with it"

lab: install ## open the first notebook in JupyterLab
	@$(BIN)/jupyter trust notebooks/*.ipynb >/dev/null || true # or JupyterLab hides the pictures until the cells are run
	$(call say,JupyterLab: stop it with Ctrl-C)
	@$(BIN)/python -m jupyterlab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
		--LabApp.app_settings_dir="$(CURDIR)/notebooks/lab" \
		$$([ $$(id -u) -ne 0 ] || echo --allow-root) $(LAB_ARGS)

app: install ## serve the live panel as a web page
	$(call say,the panel: http://localhost:$(APP_PORT); stop it with Ctrl-C)
	@JUPYTER_PATH="$(CURDIR)/notebooks$${JUPYTER_PATH:+:$$JUPYTER_PATH}" $(BIN)/python -m voila notebooks/app.ipynb \
		--template=page "--Voila.tornado_settings={'disable_check_xsrf': True}" --Voila.ip=127.0.0.1 \
		--port=$(APP_PORT) --Voila.port_retries=0 --MappingKernelManager.cull_connected=True \
		--MappingKernelManager.cull_idle_timeout=1800 --MappingKernelManager.cull_interval=60 $(APP_ARGS)

test: VERSIONS := newest
test: lint types tests notebooks soak test-versions ## lint, types, tests, notebooks, soak, the newest transformers, in this order
	$(call say,all checks passed)

lint: install ## check style and format
	$(call say,lint: ruff)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: install ## check static types
	$(call say,types: mypy)
	MYPY_NUM_WORKERS=$(TEST_JOBS) $(BIN)/python -m mypy

tests: install ## run the test suite
	$(call say,tests: pytest)
	$(BIN)/python -m pytest $(or $(TEST_ARGS),-n $(TEST_JOBS) --dist worksteal --durations=20)

soak: install ## random cases, damaged files and killed commands for MINUTES=1, by SEED
	$(call say,soak: for $(or $(MINUTES),1) min)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m soak --minutes $(or $(MINUTES),1) $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

test-versions: install ## run the parity tests under other versions of transformers
	$(call say,test-versions: the parity tests under transformers $(VERSIONS))
	@set -e; mkdir -p build/versions; others="$$PYTHONPATH" failed=""; \
	grep -vE '^(torch|transformers|huggingface_hub|tokenizers)==' constraints.txt >build/versions/constraints.txt; \
	for version in $(VERSIONS); do \
		place="build/versions/$$version"; wanted="transformers==$$version"; \
		if [ "$$version" = newest ]; then rm -rf "$$place"; wanted="$(TRANSFORMERS)"; fi; \
		[ -e "$$place/installed" ] || { rm -rf "$$place"; $(BIN)/python -m pip install -qq --no-compile \
			--disable-pip-version-check --constraint build/versions/constraints.txt --target "$$place" "$$wanted"; \
			touch "$$place/installed"; }; \
		export PYTHONPATH="$(CURDIR)/$$place$${others:+:$$others}"; \
		echo "== $$($(BIN)/python -c 'import transformers; print("transformers", transformers.__version__)')"; \
		$(BIN)/python -m pytest -q tests/parity tests/ddgviz/test_hf_recording.py $(or $(TEST_ARGS),-n $(TEST_JOBS) --dist worksteal) || \
			[ $$? -eq 5 ] || failed="$$failed $$version"; \
	done; \
	[ -z "$$failed" ] || { echo "== failed under transformers$$failed" >&2; exit 1; }

test-oldest: install ## run the suite with the oldest versions that pyproject.toml allows
	@set -e; place=build/versions/oldest; mkdir -p build/versions; \
	grep -oE '"[A-Za-z0-9_-]+([[][a-z]+[]])?>=[0-9.]+' pyproject.toml | tr -d '"' | sed 's/>=/==/' | sort -u >$$place.txt; \
	cmp -s $$place.txt $$place/installed || { \
		echo "== test-oldest: installing $$(wc -l <$$place.txt) packages at their oldest"; \
		rm -rf $$place; $(BIN)/python -m venv $$place; $$place/bin/python -m pip install -qq --no-compile \
			$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$$(grep ^torch== $$place.txt)"; \
		$$place/bin/python -m pip install -qq --no-compile -r $$place.txt; cp $$place.txt $$place/installed; }; \
	$$place/bin/python -m pytest $(or $(TEST_ARGS),-q -n $(TEST_JOBS) --dist worksteal)

notebooks: install ## run every notebook, small
	$(call say,notebooks: nbval at tiny scale)
	@ls notebooks/*.ipynb >/dev/null 2>&1 || echo "skipped: there are no notebooks yet"
	@! ls notebooks/*.ipynb >/dev/null 2>&1 || FASTDECODE_SCALE=tiny $(BIN)/python -m pytest \
		--nbval-lax --nbval-current-env --nbval-cell-timeout=120 -n $(TEST_JOBS) --dist loadfile notebooks

notebooks-save: install ## run the notebooks and save them with their pictures; NOTEBOOKS: some of them
	$(call say,notebooks-save: needs Chromium)
	$(BIN)/python notebooks/save.py $(NOTEBOOKS)

format: install ## rewrite the sources in the project's format
	$(call say,format: ruff)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

figures: install ## draw every figure and table into build/figures
	$(call say,figures: into build/figures)
	$(BIN)/fastdecode figures
	$(BIN)/fastdecode figures --pages
	for theme in light dark; do $(BIN)/fastdecode translate --from en --to de --decoder window:width=3 --theme $$theme \
		--svg docs/pictures/passes-$$theme.svg "My sister has been learning to play the piano for two years." >/dev/null; done
	DDGVIZ_PICTURES=docs/pictures $(BIN)/python -m pytest -q tests/ddgviz/test_gallery.py

site: install ## build the documentation into build/site and look at it in Chromium
	@[ "$$(cat .venv/docs 2>/dev/null)" = "$(WANTED)" ] || { \
		echo "== installing Sphinx, its theme and a dozen smaller packages"; \
		$(PIP) --editable ".[docs]" && echo "$(WANTED)" >.venv/docs; }
	$(call say,site: into build/site)
	rm -rf build/site
	$(BIN)/python -m sphinx -E -q -W --keep-going -c docs -d build/site-doctrees . build/site
	@echo "== the site is ready: build/site/index.html; now every page is looked at in Chromium, two minutes or more"
	FASTDECODE_SITE=build/site $(BIN)/python -m pytest tests/docs/test_site.py $(or $(SITE_ARGS),-v)

bench-%: install ## measure cpu, projections, combinations or ddgviz on this machine
	$(call say,bench-$*: BENCH_ARGS=--quick takes under five minutes)
	PYTHONPATH=tests/ddgviz $(BIN)/python -m benchmarks.$* $(BENCH_ARGS)

gpu: $(if $(GPU_PYTHON),,install) ## parity tests and measurements of three papers on a GPU, ten minutes at most, into build/gpu
	$(call say,gpu: into $(GPU_OUT))
	$(or $(GPU_PYTHON),$(BIN)/python) -m benchmarks.gpu --out "$(GPU_OUT)" $(GPU_ARGS)

train: install ## train a bundled model again, from where it stopped
	$(call say,train: $(TRAIN_ARGS))
	$(BIN)/fastdecode train $(TRAIN_ARGS)

clean: ## remove build products; ALL=1: checkpoints in training too
	$(call say,clean: build products and caches$(if $(ALL),, but not build/train))
	[ ! -d build ] || find build -mindepth 1 -maxdepth 1 $(if $(ALL),,! -name train) -exec rm -rf {} +
	rm -rf dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o '(' -name __pycache__ -o -name .ipynb_checkpoints ')' -prune -exec rm -rf {} +

install: ## set up .venv where it is missing, stale or broken
	@set -e; \
	if [ "$$(cat .venv/installed 2>/dev/null)" = "$(WANTED)" ] && $(WORKS) 2>/dev/null; then exit 0; fi; \
	if [ -e .venv ] && ! $(BIN)/python -I -m pip --version >/dev/null 2>&1 || \
		{ [ -e .venv/installed ] && ! $(WORKS) 2>/dev/null; }; then \
		echo "== .venv is broken: building it anew"; rm -rf .venv; \
	fi; \
	if [ ! -e .venv ]; then \
		[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or newer found. Install one, or name it: PYTHON=PATH" >&2; exit 1; }; \
		echo "== making .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv .venv; \
	fi; \
	rm -f .venv/installed; \
	{ grep -v '^torch==' constraints.txt; echo "torch==$(TORCH)"; } >.venv/constraints.txt; \
	echo "== installing torch $(TORCH): the largest part, a minute or more"; \
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX) --force-reinstall) "torch==$(TORCH)"; \
	echo "== installing the rest: JupyterLab, transformers and some 100 smaller packages, two minutes or so"; \
	$(PIP) --editable ".[$(EXTRAS)]"; \
	$(WORKS) || { echo "torch $(TORCH) does not load here: try TORCH=VERSION or TORCH_INDEX=URL" >&2; exit 1; }; \
	echo "$(WANTED)" >.venv/installed; \
	echo "== .venv is ready: $$(du -sh .venv | cut -f1)"
