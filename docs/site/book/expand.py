"""What the Markdown leaves to the site: whole diffs between neighbouring kernels, folded below their lines that matter."""

import re

from fa_tools.press.sync import difference, fenced

DIFF = re.compile(r"^<!-- diff: (\S+) (\S+) -->\n.*?^<!-- /diff -->$", re.MULTILINE | re.DOTALL)


def with_whole_diffs(text):
    def whole(match):
        lines = fenced("diff", difference(match[1], match[2]))
        return "\n".join([match[0], "", "<details>", "<summary>The whole diff</summary>", "", *lines, "", "</details>"])
    return DIFF.sub(whole, text)
