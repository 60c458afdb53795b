# Two commands matter: `make look` (set up, build, show) and `make test` (the same set-up, every test).
# PRESET chooses the build folder build/PRESET (release; CI and development use dev, where warnings are errors).
PRESET ?= release
export PRESET JOBS

.PHONY: help setup look test sanitize neon avx512 bench lint format asan-all clean
.DEFAULT_GOAL := help

help:
	@echo "make look      set up, build, and look into a real model with a real sentence"
	@echo "make test      the same set-up, then every test"
	@echo "make sanitize  the rooms without libtorch under sanitizers, and the fuzzers"
	@echo "make neon      kernel and attention on 64-bit Arm: cross-compiled, their tests under qemu"
	@echo "make avx512    their AVX-512 tests in an emulated machine, for processors without it (long)"
	@echo "make setup     only the set-up: packages, libtorch, the model minilm"
	@echo "make bench     speed beside libtorch in the same process (BENCH_ARGS adds options)"
	@echo "make lint      formatting, clang-tidy, and which room includes which"
	@echo "make format    format every source file in place"
	@echo "make asan-all  all rooms, libtorch's too, under the address and undefined-behaviour sanitizers"
	@echo "make clean     remove build/ (downloads and models stay in the cache folder)"
	@echo "Variables: PRESET=$(PRESET), JOBS (default: what memory allows), REGARD_CACHE, PIP_INDEX_URL, TORCH_INDEX"

setup:
	@scripts/setup.sh look

look:
	@scripts/look.sh

test:
	@scripts/test.sh

sanitize:
	@scripts/sanitize.sh

neon:
	@scripts/neon.sh

avx512:
	@scripts/avx512.sh

bench:
	@scripts/bench.sh $(BENCH_ARGS)

lint:
	@scripts/lint.sh

format:
	@scripts/lint.sh --format

asan-all:
	@scripts/asan_all.sh

clean:
	rm -rf build out
