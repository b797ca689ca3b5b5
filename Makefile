# The two commands: `make run` (the demo study) and `make test` (the gate). Both set up on first use.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready
BENCH_READY := .venv-bench/.ready
DEMO := studies/smollm2-135m
RESULTS := $(DEMO)/results
RECORDED := $(addprefix $(RESULTS)/,best-config.yaml vllm.yaml report.md run.log)
ARGS ?=
# The demo decodes in bfloat16 where the machine computes it, in float32 where it would only get by.
COMPUTES_BF16 := $(shell command -v nvidia-smi || grep -oswE -m1 'avx512_bf16|amx_bf16' /proc/cpuinfo)
export AUTOTUNE_DEMO_DTYPE ?= $(if $(COMPUTES_BF16),bfloat16,float32)
# `autotune run` tells its verdict by its exit code; 3 (do not speculate) and 4 (tie) are answers, too.
FINISHED := { code=$$?; [ $$code -eq 3 ] || [ $$code -eq 4 ] || exit $$code; }

$(READY): pyproject.toml .ci/setup .ci/sources .ci/constraints.txt
	@.ci/setup

$(BENCH_READY): .ci/setup-bench .ci/sources $(READY)
	@.ci/setup-bench

.PHONY: help
help: ## Show this help.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: run
run: models ## Set up on first use, then tune the demo: autotune run candidates.yaml.
	@$(BIN)/autotune run candidates.yaml $(ARGS) || $(FINISHED)

.PHONY: test
test: models check ## Set up on first use, then everything: checks, tests, one short real vLLM run.
	$(BIN)/python -m pytest -m "live and not witness and not long" -v --timeout 1500

.PHONY: setup
setup: $(READY) ## Make the environment (.venv).

.PHONY: models
models: $(READY) ## Build the demo's target and drafts, if they are missing.
	@$(BIN)/python $(DEMO)/models.py

.PHONY: check
check: $(READY) ## The fast loop: format, lint, types, import contracts, tests without vLLM.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not live and not gpu" -n 4 --dist loadfile

.PHONY: live
live: models ## The tests on a real vLLM (CPU or GPU), vLLM's own client beside ours included.
	$(BIN)/python -m pytest -m live -v --timeout 1500

.PHONY: format
format: $(READY) ## Format and fix what can be fixed.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: record
record: models ## Run the demo from nothing and keep its results in studies/smollm2-135m/results.
	@-$(BIN)/autotune clean smollm2-135m --yes
	@set -o pipefail; $(BIN)/autotune run candidates.yaml | tee $(DEMO)/run.log || $(FINISHED)
	@rm -rf $(RESULTS)/passes && mkdir -p $(RESULTS)/passes
	@cp reports/smollm2-135m/* $(RESULTS)/ && mv $(DEMO)/run.log $(RESULTS)/
	@for n in $(DEMO)/launches/*/; do cp $$n/passes.jsonl $(RESULTS)/passes/$$(basename $$n).jsonl; done
	@# What is kept names no machine: paths become relative, the line with the host's name goes.
	@sed -i -e 's|$(CURDIR)/||g' -e 's|$(CURDIR)|.|g' $(RECORDED) $(RESULTS)/passes/*.jsonl
	@sed -i -e '/^  host: /d' $(RESULTS)/best-config.yaml
	@sed -i -e '/^| host |/d' $(RESULTS)/report.md

.PHONY: bench-client
bench-client: $(BENCH_READY) ## What a token costs the client, beside vLLM's and guidellm's; docs/benchmarks.md.
	@$(BIN)/python studies/benchmarks/client.py $(ARGS)

.PHONY: bench-measure
bench-measure: models ## What a narrow interval costs, and whether intervals cover; docs/benchmarks.md.
	@$(BIN)/python studies/benchmarks/measure.py $(ARGS)

.PHONY: bench-search
bench-search: $(READY) ## What the search finds, and with how few launches; docs/benchmarks.md.
	@$(BIN)/python studies/benchmarks/search.py $(ARGS)

.PHONY: ui
ui: $(READY) ## The MLflow UI on loopback.
	@$(BIN)/autotune ui

.PHONY: clean
clean: ## Remove caches and the environment; measurements stay.
	rm -rf .venv .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
