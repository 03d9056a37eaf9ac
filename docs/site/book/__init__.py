"""The site's own part: Markdown as code hosts read it, source pages, charts, exports. hooks.py ties it to MkDocs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
INTERACTIVE = ROOT / "build" / "emulator" / "interactive"  # the pages that scripts/docs.sh interactive makes

sys.path += [str(ROOT / "scripts" / "lib"), str(ROOT / "scripts")]  # last, so that they hide no library
