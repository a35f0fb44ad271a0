# Each target sets up what it needs: Python packages in .venv, and for the boards a cross compiler and QEMU,
# for the tests analyzers of C.
#
#   make demo    compile, run and verify the digits network on the host and on a Cortex-M4 in QEMU
#   make test    the whole test suite
#   make test-fast     passes, memory planning, reports, golden files: under 90 seconds
#   make test-changed  tests of what the branch changed (BASE=commit)
#   make sweep   more parameters of some tests, which take long
#   make check   lint, format (C too), types, layering, the site
#   make docs    the site, build/site/index.html
#   make install the command tvm-ext in ~/.local/bin, which runs from any folder
#   make release-check  a wheel in an environment of its own compiles and verifies a model
#   make format  apply the formatters

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
# What users need, without tools of development; in .venv of developers it is there already.
USER_READY := .venv/.ready_for_users
# Three processes keep two cores busy: each of them waits for compilers and emulators now and then.
PYTEST_ARGS ?= -n 3 --dist loadfile

export OMP_NUM_THREADS ?= 1

# C that is written by hand.
C_FILES = $(wildcard codegen_c/arena/*.[ch] relay_passes/solvers/recompute/*.[ch] \
    codegen_c/runtime/*.[ch] codegen_c/custom/*/runtime/*.h codegen_c/targets/*/*.[ch] \
    codegen_c/targets/*/runtime/*.[ch])

.PHONY: demo install test test-fast test-changed sweep check types style docs release-check format boards \
    arm-boards analyzers clean

demo: $(USER_READY) arm-boards
	@$(BIN)/python tutorials/demo.py
	@echo "To go on: make install; tvm-ext doctor; tvm-ext compile MODEL -p cortex_m4 -o out/model"

BINDIR ?= $(HOME)/.local/bin
install: $(USER_READY)
	@mkdir -p "$(BINDIR)"
	@ln -sf "$(CURDIR)/$(BIN)/tvm-ext" "$(BINDIR)/tvm-ext"
	@echo "$(BINDIR)/tvm-ext is there; where the shell does not find it, add $(BINDIR) to PATH."

# Tests call make themselves, and are not to take this one for their caller. They start the command hundreds of times:
# compiled once, its modules load a second faster.
PYTEST = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest $(PYTEST_ARGS)

test: $(READY) boards analyzers
	@$(PYTEST)

FAST = tests/passes tests/arena tests/report tests/golden tests/house
test-fast: $(READY)
	@$(PYTEST) -m "not sweep and not slow" $(FAST)

# BASE: the commit to compare with, by default where the branch left main.
test-changed: $(READY)
	@$(PYTEST) $$($(BIN)/python .ci/changed_tests.py $(BASE))

sweep: $(READY) boards
	@$(PYTEST) -m sweep

# With -j2 its parts run side by side and take as long as the longest of them, the check of types.
check: docs types style

types: $(READY)
	$(BIN)/pyright

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)

# Strict: a link that leads nowhere fails.
docs: $(READY)
	@$(BIN)/python documentation/stage.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file build/mkdocs.yml

release-check: $(READY) arm-boards
	@$(BIN)/python .ci/release_check.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

boards:
	@.ci/boards

arm-boards:
	@.ci/boards arm

analyzers:
	@.ci/analyzers

$(READY): pyproject.toml constraints.txt
	@.ci/venv "$(PYTHON)" developer
	@touch $@ $(USER_READY)

$(USER_READY): pyproject.toml constraints.txt
	@.ci/venv "$(PYTHON)" user
	@touch $@

clean:
	rm -rf .venv build out *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
