"""What Python reads of kernels and layouts (scripts/fa_tools/facts.json) is what the program `layouts` prints.

Usage: test_facts.py LAYOUTS"""

import json
import sys

from tool_test import expect, run

from fa_tools.sources import constants

expect(json.loads(run(sys.argv[1], "facts")) == constants(),
       "scripts/fa_tools/facts.json is not what `layouts facts` prints; scripts/fa adopt --only documents writes it")
