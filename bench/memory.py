"""The memory of a command and all processes that it starts, pages that they share counted once.

    python3 bench/memory.py COMMAND...        prints the largest sum seen, in MB

Looks every few milliseconds, which slows the command down: time it in another run.
"""
import os
import subprocess
import sys
import time


def processes(root):
    """root and its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def proportional_kb(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return next((int(line.split()[1]) for line in f if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def main():
    command = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
    peak = 0
    while command.poll() is None:
        peak = max(peak, sum(map(proportional_kb, processes(command.pid))))
        time.sleep(0.003)
    print(f"{peak / 1024:.1f}")
    sys.exit(command.returncode)


main()
