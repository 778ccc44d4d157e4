# A thin front for CMake. `make` builds; everything lands in build/.
BUILD  ?= build
PRESET ?= release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)

# What one clone has compiled, ccache finds again for another.
export CCACHE_BASEDIR  ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

.PHONY: all configure build bootstrap bootstrap-tests run test check docs manual bench install uninstall dist deb clean

all: build

bootstrap:
	@scripts/bootstrap

bootstrap-tests:
	@scripts/bootstrap --tests

configure: bootstrap
	@cmake --preset $(PRESET) -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX) > .configure.log 2>&1 || { cat .configure.log; exit 1; }
	@sed -n 's/^-- \(lockstep: .*: off (.*\)/\1/p' .configure.log; rm -f .configure.log

# The command, the libraries and the examples.
build: configure
	@cmake --build $(BUILD) -j $(JOBS) --target product

# Trains the MNIST example on this machine and shows the result.
run: build
	@$(BUILD)/lockstep run -C examples/mnist.yml --overwrite

# Builds everything and runs the fast tests and the checks of style.
test: bootstrap-tests configure check
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) -L fast --output-on-failure -j $(JOBS)

check:
	@scripts/check-includes
	@scripts/check-format
	@scripts/check-docs

# The page of all components and keys, and the tables of environment variables, as the command prints them.
docs: build
	@$(BUILD)/lockstep components --markdown > docs/components.md
	@scripts/write-environment $(BUILD)/lockstep

# The manual as a static site with a search, in build/manual. Needs Debian's mkdocs.
manual:
	@mkdir -p $(BUILD)
	@scripts/write-manual $(BUILD)/manual
	@echo "$(BUILD)/manual/index.html"

bench: bootstrap-tests configure
	@cmake --build $(BUILD) -j $(JOBS) --target product benches
	@bench/run $(BUILD)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

# Removes what the last `make install` of this build installed.
uninstall:
	@scripts/uninstall $(BUILD)

# The release tarball of this commit, and recipes for a container, Spack and conda that name it, in build/.
dist:
	@scripts/make-dist $(BUILD)

# A Debian package, in build-deb/: a build of its own, for /usr.
deb: bootstrap
	@cmake --preset $(PRESET) -B $(BUILD)-deb -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_TESTING=OFF $(CMAKE_FLAGS) > /dev/null
	@cmake --build $(BUILD)-deb -j $(JOBS) --target product
	@scripts/make-deb $(BUILD)-deb $(BUILD)-deb

clean:
	@rm -rf build build-*
