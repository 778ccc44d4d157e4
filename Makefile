# A thin front for CMake. `make` builds; everything lands in build/.
BUILD  ?= build
PRESET ?= release
JOBS   ?= $(shell nproc)

.PHONY: all build bootstrap run test bench install clean

all: build

bootstrap:
	@scripts/bootstrap

build: bootstrap
	@cmake --preset $(PRESET) -B $(BUILD) > $(BUILD).log 2>&1 || { cat $(BUILD).log; rm -f $(BUILD).log; exit 1; }; rm -f $(BUILD).log
	@cmake --build $(BUILD) -j $(JOBS)
