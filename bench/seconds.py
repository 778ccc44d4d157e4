"""How long a command takes.

    python3 bench/seconds.py COMMAND...        prints seconds
"""
import subprocess
import sys
import time

start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(f"{time.perf_counter() - start:.3f}")
