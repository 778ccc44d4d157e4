#!/bin/sh
# The same comparisons as the fast tests, with numbers that PyTorch gives right now instead of the golden files.
#
#     tests/oracle/nn_live.sh [BUILD [SHIFT]]       default: build, and the seeds of the golden files
#
# SHIFT, a number, gives every case other seeds, so other weights and inputs.
# Exits with 77 (skipped) where Debian's python3-torch is not installed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
if ! /usr/bin/python3 -c 'import torch; assert torch.__version__.startswith("1.13")' 2>/dev/null; then
    echo "skipped: PyTorch 1.13 (python3-torch) is not installed" >&2
    exit 77
fi
LOCKSTEP_GOLDEN=$build/tests/live_golden
export LOCKSTEP_GOLDEN
rm -rf "$LOCKSTEP_GOLDEN"
/usr/bin/python3 -W ignore "$root/tests/oracle/nn_parity.py" "$LOCKSTEP_GOLDEN" "${2:-0}"
/usr/bin/python3 -W ignore "$root/tests/oracle/nn_recurrent.py" "$LOCKSTEP_GOLDEN" "${2:-0}"
/usr/bin/python3 -W ignore "$root/tests/oracle/nn_more.py" "$LOCKSTEP_GOLDEN" "${2:-0}"
for test in nn_test_layers nn_test_more_layers nn_test_recurrent nn_test_criterion nn_test_init optim_test_optimizer optim_test_scheduler; do
    "$build/tests/$test" >"$build/tests/$test.live.log" 2>&1 || {
        grep -E 'ERROR|FAILED' "$build/tests/$test.live.log"
        exit 1
    }
    echo "$test: equal to live PyTorch"
done
