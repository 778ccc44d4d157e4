#!/bin/sh
# Weights that PyTorch writes and the command reads, and back, with PyTorch as it is installed.
#
#     tests/oracle/torch_exchange_live.sh [BUILD]
#
# Exits with 77 (skipped) where Debian's python3-torch is not installed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
if ! /usr/bin/python3 -c 'import torch; assert torch.__version__.startswith("1.13")' 2>/dev/null; then
    echo "skipped: PyTorch 1.13 (python3-torch) is not installed" >&2
    exit 77
fi
rm -rf "$build/tests/torch_exchange"
/usr/bin/python3 -W ignore "$root/tests/oracle/torch_exchange.py" "$build/lockstep" "$build/tests/torch_exchange"
