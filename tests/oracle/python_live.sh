#!/bin/sh
# The same script with PyTorch and with the Python package: the same numbers from the same seed.
#
#     tests/oracle/python_live.sh [BUILD]
#
# Exits with 77 (skipped) where Debian's python3-torch is not installed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
if ! /usr/bin/python3 -c 'import torch, numpy' 2>/dev/null; then
    echo "skipped: PyTorch (python3-torch) is not installed" >&2
    exit 77
fi
[ -f "$build/liblockstep.so" ] || { echo "skipped: there is no liblockstep.so in $build" >&2; exit 77; }
PYTHONPATH=$root/python LOCKSTEP_LIBRARY=$build/liblockstep.so /usr/bin/python3 -W ignore "$root/tests/oracle/python_live.py"
