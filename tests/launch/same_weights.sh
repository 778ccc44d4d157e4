# Sourced by the tiers that start the same training in many ways: however two ranks were started, they end with the same
# weights. Sets build, here, work (a temporary folder, which is entered), train and reference (the hash of two forked ranks);
# failed is the exit status in the end. BUILD names the build.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
cd "$here" || exit 1
build=$(cd "${BUILD:-build}" && pwd) || exit 1
work=$(mktemp -d)
failed=0
export OMP_NUM_THREADS=1
cleanup() { rm -rf "$work"; }
trap cleanup EXIT
cd "$work" || exit 1

train="$build/lockstep run -C $here/examples/mnist.yml --num-epochs 2"
hash_of() { "$build/lockstep" hash "$work/$1/checkpoints/model.last.safetensors" 2>/dev/null | awk '{ print $1 }'; }

# fail TEXT [FILE]: says so, with the end of what the run said.
fail() {
    echo "FAILED: $1"
    [ -n "${2:-}" ] && tail -8 "$work/$2" 2>/dev/null
    failed=1
}

# expect NAME [HASH]: the run in folder NAME ended with the weights of the two forked ranks, or with these.
expect() {
    local hash wanted=${2:-$reference}
    hash=$(hash_of "$1")
    if [ -n "$hash" ] && [ "$hash" = "$wanted" ]; then
        echo "$1: the same weights, $hash"
    else
        fail "$1: weights ${hash:-missing}, expected $wanted" "$1.out"
    fi
}

# says NAME TEXT: the run NAME said so.
says() { grep -q -- "$2" "$work/$1.out" || fail "$1 did not say \"$2\"" "$1.out"; }

$train --nproc 2 --logdir forked > forked.out 2>&1 || { echo "FAILED: forked ranks"; cat forked.out; exit 1; }
reference=$(hash_of forked)
echo "forked: $reference"
