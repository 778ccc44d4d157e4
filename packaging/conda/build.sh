#!/bin/sh
# What conda build runs in the unpacked tarball. PREFIX, PYTHON and CPU_COUNT are conda's.
set -eu
cmake -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_PREFIX_PATH="$PREFIX" \
    -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_TESTING=OFF -DLOCKSTEP_WERROR=OFF -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_PYTHON="$PYTHON"
cmake --build build -j "${CPU_COUNT:-2}" --target product
cmake --install build
