#!/usr/bin/env python3
"""scripts/bench.py by its former name; scripts/bench.py --help says what it understands.

example:
  scripts/peers.py --program build/cuda/bin/attention 08 10 --seq-len 4096"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.exit(print(__doc__))
    runpy.run_path(str(Path(__file__).with_name("bench.py")), run_name="__main__")
