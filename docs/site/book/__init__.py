"""The site's own part: Markdown as code hosts read it, source pages, charts, exports. hooks.py ties it to MkDocs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
INTERACTIVE = ROOT / "build" / "emulator" / "interactive"  # the pages that scripts/fa docs interactive makes

