#!/bin/bash
# A real Slurm cluster of two nodes on this one machine, for as long as the test takes: munged, slurmctld and two slurmd
# in a temporary folder. Runs tests/launch's rank program under srun in every way that the launcher knows.
#
#     slurm_cluster.sh RANK_PROGRAM [COMMAND ...]
#
# RANK_PROGRAM is build/tests/launch_test_connect. With a COMMAND, that is run instead, inside an allocation of the two nodes
# (srun, sbatch and scontrol find the cluster). Exit 0: all well; 77: cannot run here, and why.
set -u

skip() { echo "NOT TESTED: $*" >&2; exit 77; }

[ "$(id -u)" = 0 ] || skip "a Slurm cluster needs root"
for tool in slurmctld slurmd munged srun scontrol; do
    command -v $tool >/dev/null 2>&1 || [ -x /usr/sbin/$tool ] || skip "$tool is not installed (packages slurmctld slurmd slurm-client munge)"
done
PATH=$PATH:/usr/sbin:/sbin
program=$(readlink -f "${1:?slurm_cluster.sh RANK_PROGRAM}")
shift

work=$(mktemp -d /tmp/lockstep-slurm-XXXXXX)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    sleep 0.5
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
wait_for() { # seconds, what, command...
    local seconds=$1 what=$2
    shift 2
    for _ in $(seq $((seconds * 10))); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done
    echo "FAILED: $what" >&2
    tail -n 5 "$work"/*.log >&2
    exit 1
}

# munge, with a key and a socket of its own.
chmod 755 "$work"
mkdir -m 755 "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 600 "$work/munge/key"
munged --foreground --force --key-file "$work/munge/key" --socket "$work/munge/socket" --pid-file "$work/munge/pid" \
    --log-file "$work/munge.log" --seed-file "$work/munge/seed" >/dev/null 2>&1 &
pids+=($!)
wait_for 10 "munged did not start" test -S "$work/munge/socket"

# Two nodes, told apart by name and port; both are this host.
host=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=lockstep
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SchedulerType=sched/backfill
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.%n.log
KillWait=2
InactiveLimit=0
GresTypes=gpu
NodeName=lka NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=4 Gres=gpu:2
NodeName=lkb NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=4 Gres=gpu:2
PartitionName=all Nodes=lka,lkb Default=YES MaxTime=10 State=UP OverSubscribe=YES
CONF
# GPUs that are none: devices that do nothing.
printf 'Name=gpu File=%s Flags=nvidia_gpu_env\n' /dev/null /dev/zero >"$work/gres.conf"
mkdir "$work/state" "$work/spool.lka" "$work/spool.lkb"
export SLURM_CONF=$work/slurm.conf
slurmctld -D -i -f "$SLURM_CONF" >"$work/slurmctld.out.log" 2>&1 &
pids+=($!)
for node in lka lkb; do
    slurmd -D -N $node -f "$SLURM_CONF" >"$work/slurmd.$node.out.log" 2>&1 &
    pids+=($!)
done
both_idle() { [ "$(sinfo -h -N -o %t 2>/dev/null | grep -c '^idle')" = 2 ]; }
wait_for 30 "the two nodes did not come up" both_idle

# Nodes of one machine share memory; LOCKSTEP_HOST_ID makes them two hosts, and MASTER_ADDR gives the made-up names an address.
export MASTER_ADDR=127.0.0.1
failures=0
check() { # name, command...
    local name=$1
    shift
    if timeout 120 "$@" >"$work/out.log" 2>&1; then
        echo "ok      $name"
    else
        echo "FAILED  $name (exit $?)"
        tail -n 15 "$work/out.log"
        failures=$((failures + 1))
    fi
}

if [ $# -gt 0 ]; then
    "$@"
    exit $?
fi

on_two_hosts='export LOCKSTEP_HOST_ID=$SLURMD_NODENAME; exec "$0" "$@"'
check "one task a rank, one host" srun -N 1 -n 3 "$program" --as-rank auto auto shm
check "one task a rank, two nodes" srun -N 2 -n 4 sh -c "$on_two_hosts" "$program" --as-rank auto auto hierarchy
check "gloo between all" srun -N 2 -n 3 sh -c "$on_two_hosts" "$program" --as-rank auto gloo hierarchy
check "one task a node that forks two ranks" srun -N 2 --ntasks-per-node=1 sh -c "$on_two_hosts" "$program" --as-rank forks 2 4
check "nodes whose names DNS does not know" env -u MASTER_ADDR srun -N 2 -n 4 sh -c "$on_two_hosts" "$program" --as-rank auto auto hierarchy
check "a batch script" sbatch -W -N 2 -n 2 -o "$work/batch.log" --wrap "srun sh -c '$on_two_hosts' $program --as-rank auto auto hierarchy"

# Two steps of the same job number pattern side by side do not meet.
timeout 120 srun -N 1 -n 2 "$program" --as-rank auto auto shm >"$work/first.log" 2>&1 &
first=$!
check "two jobs at once" srun -N 1 -n 2 "$program" --as-rank auto auto shm
wait $first || { echo "FAILED  the other of two jobs"; failures=$((failures + 1)); }

# A wrong allocation is said in one line.
if srun -N 2 -n 4 "$program" --as-rank forks 3 6 >"$work/out.log" 2>&1; then
    echo "FAILED  --nproc beside several tasks a node was accepted"
    failures=$((failures + 1))
elif grep -q "start one task per node" "$work/out.log"; then
    echo "ok      --nproc beside several tasks a node is refused"
else
    echo "FAILED  no helpful error:"
    tail -n 5 "$work/out.log"
    failures=$((failures + 1))
fi
[ $failures = 0 ]
