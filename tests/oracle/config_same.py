"""Two YAML files must say the same: the original, and what lockstep wrote of it. Order counts."""
import sys

import yaml

first, second = (yaml.safe_load(open(path, encoding="utf-8")) for path in sys.argv[1:3])
if repr(first) != repr(second):
    sys.exit(f"they differ:\n{first!r}\n{second!r}")
