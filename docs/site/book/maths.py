"""LaTeX to MathML, when the site is built: browsers draw MathML by themselves, with no script and no font of ours."""

import re
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from latex2mathml.converter import convert


class BadMaths(Exception):
    """One sentence."""


def to_mathml(latex, display):
    latex = latex.strip()
    try:
        mathml = convert(latex, display="block" if display else "inline")
    except Exception as problem:  # the library has many kinds
        raise BadMaths(f"maths that cannot be converted: {latex} ({type(problem).__name__})") from None
    # A command that the library does not know comes out as its name.
    left = re.search(r"(?:\\|&#x0005C;)([A-Za-z]+)", re.sub(r"<annotation.*?</annotation>", "", mathml, flags=re.DOTALL))
    if left or "<merror" in mathml:
        raise BadMaths(f"maths with a command that the site does not know: {left[1] if left else latex}")
    return mathml.replace("&#x02212;", "−")
