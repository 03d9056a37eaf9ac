"""The addresses of Python's package, for pyproject.toml: those of the checkout that it is built from, since a copy of this
repository is somebody's own. GitHub's workflows say where they run, a checkout knows what it was cloned from, and a source
archive has what was found when it was made. Where nothing is known the package has no address.
And its description: README as an index shows it, without comments, and with links that lead there from anywhere."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin


def address() -> str:
    """https://host/owner/name, or nothing."""
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{os.environ['GITHUB_REPOSITORY']}"
    archive = Path("PKG-INFO")
    if archive.is_file():
        found = re.search(r"^Project-URL: Source, (\S+)$", archive.read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else ""
    if not Path(".git").exists():  # of a repository around this folder nothing is wanted
        return ""
    try:
        asked = subprocess.run(["git", "config", "--get", "remote.origin.url"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return public(asked.stdout.strip())


def public(remote: str) -> str:
    """What a browser takes, of git's address: without a user's name or token. Of a folder there is none."""
    for form in (r"https://(?:[^/@]*@)?(?P<host>[\w.:-]+)/(?P<path>.+)", r"ssh://(?:[^/@]*@)?(?P<host>[\w.-]+)(?::\d+)?/(?P<path>.+)",
                 r"[\w.-]+@(?P<host>[\w.-]+):(?P<path>.+)"):
        if found := re.fullmatch(form, remote):
            return f"https://{found['host']}/{found['path'].rstrip('/').removesuffix('.git')}"
    return ""


def description(text: str, source: str) -> str:
    """README's text. Links lead to the source; where that has no address they are words."""
    text = re.sub(r"(?m)^<!--.*?-->\n|<!--.*?-->", "", text)

    def link(match: re.Match[str]) -> str:
        image, words, target = match.groups()
        if re.match(r"https?:|#", target):
            return match[0]
        if not source:
            return "" if image else words
        absolute = urljoin(f"{source}/{'raw' if image else 'blob'}/main/", target)
        return f"{image}[{words}]({absolute})"

    return re.sub(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)", link, text)


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> dict[str, str]:
    found = address()
    if field == "readme":
        return {"content-type": "text/markdown", "text": description(Path("README.md").read_text(encoding="utf-8"), found)}
    return {"Source": found, "Changelog": f"{found}/blob/main/CHANGELOG.md", "Issues": f"{found}/issues"} if found else {}
