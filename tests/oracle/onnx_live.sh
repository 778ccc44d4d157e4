#!/bin/sh
# Models that the command exports to ONNX: onnx's checker reads them, and onnxruntime (from npm) gives what we predict.
#
#     tests/oracle/onnx_live.sh [BUILD]
#
# Exits with 77 (skipped) where the build has no ONNX, PyTorch 1.13 is not installed, or npm cannot give onnxruntime.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
folder=$build/tests/onnx_models
skip() { echo "skipped: $*" >&2; exit 77; }
[ -e "$build/liblockstep_onnx.so" ] || skip "this build has no ONNX"
/usr/bin/python3 -c 'import torch' 2>/dev/null || skip "PyTorch (python3-torch) is not installed"
/usr/bin/python3 -W ignore "$root/tests/oracle/onnx_models.py" write "$build/lockstep" "$folder"
command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 || skip "node and npm are not installed"
if [ ! -e "$folder/node_modules/onnxruntime-node" ]; then
    timeout 300 npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund onnxruntime-node@1.16.3 >"$folder/npm.log" 2>&1 ||
        skip "npm could not give onnxruntime-node: $folder/npm.log"
fi
node "$root/tests/oracle/onnx_run.js" "$folder"
/usr/bin/python3 -W ignore "$root/tests/oracle/onnx_models.py" compare "$folder"
