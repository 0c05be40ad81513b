# The short way to everything. `make` alone lists it.
# not a shell's own $SECONDS, which would count up
SOAK_SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
.PHONY: help demo test soak bench build package docs format install check configured
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
RELEASE := build/release

help:
	@echo "make demo     count the words of a real text in one process, then in three, over each transport;"
	@echo "              then the jobs of scripts/demo_jobs (VERBOSE=1 shows their runs)"
	@echo "              (FILES=\"a.txt b.txt\" for a text of your own)"
	@echo "make test     build everything and run all tests"
	@echo "make soak     hostile peers and random programs with fresh seeds (SECONDS=3600 for an hour, BUILD=build/asan)"
	@echo "make bench    compare with rivals in one run; writes build/bench/report.md and report.json"
	@echo "make build    build the library, $(RELEASE)/bin/amalgam, the tests and the examples"
	@echo "make check    the checks that CI runs beside the tests: format, layers, headers, README, listings, site, scripts, spaces"
	@echo "make package  leave Debian packages of the library, the tool and the plug-ins in build/packages"
	@echo "make docs     write the site, guides and reference, to build/docs"
	@echo "make format   format all sources"
	@echo "make install  install to PREFIX (now $(PREFIX))"

configure = cmake --preset release $(1) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }

configured:
	@scripts/install_packages build
	@mkdir -p build
	@grep -qs '^AMALGAM_TESTS:BOOL=ON' $(RELEASE)/CMakeCache.txt || { $(call configure,-DAMALGAM_TESTS=ON -DAMALGAM_PEERS=ON); }

build: configured
	@cmake --build $(RELEASE) -j $(JOBS)

# Without the tests, unless they are there already.
demo:
	@scripts/install_packages demo
	@mkdir -p build
	@test -f $(RELEASE)/build.ninja || { $(call configure,-DAMALGAM_TESTS=OFF -DAMALGAM_PEERS=OFF); }
	@cmake --build $(RELEASE) -j $(JOBS) --target amalgam_demo
	@scripts/demo $(RELEASE) $(FILES)

test: build
	@scripts/run_tests $(RELEASE)

BUILD ?= $(RELEASE)
soak: build
	@cmake --build "$(BUILD)" -j $(JOBS) >build/soak.log 2>&1 || { tail -n 60 build/soak.log; exit 1; }
	@scripts/soak "$(BUILD)" $(SOAK_SECONDS) --faults $(or $(FAULTS),1)

bench:
	@scripts/install_packages build bench
	@mkdir -p build
	@cmake --preset release -DAMALGAM_BENCHES=ON >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build $(RELEASE) -j $(JOBS)
	@benches/run.py $(RELEASE) build/bench

package:
	@scripts/install_packages demo package
	@mkdir -p build
	@cmake --preset package >build/package.log 2>&1 || { cat build/package.log; exit 1; }
	@cmake --build build/package -j $(JOBS)
	@rm -rf build/packages
	@umask 022 && cd build/package && cpack >../package.log 2>&1 || { cat ../package.log; exit 1; }
	@rm -rf build/packages/_CPack_Packages
	@lintian --fail-on error,warning build/packages/*.deb
	@ls build/packages

docs:
	@scripts/install_packages docs
	@mkdir -p build
	@scripts/make_docs build/docs

check:
	@scripts/check_format
	@scripts/check_layers
	@scripts/check_abi
	@scripts/check_names
	@scripts/check_headers
	@scripts/check_readme
	@scripts/check_listings
	@scripts/check_docs
	@scripts/check_scripts
	@scripts/check_spaces

format:
	@git ls-files -co --exclude-standard '*.hpp' '*.cpp' '*.h' '*.c' | xargs clang-format -i

install: build
	@cmake --install $(RELEASE) --prefix "$(PREFIX)" >/dev/null && echo "installed to $(PREFIX)"
