"""Pages that come quickly: pictures say once what many elements have in common, the theme's style sheet says nothing of
what the book has not."""

import re
from collections import Counter

LOOKS = {"fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family", "font-style",
         "text-anchor", "opacity", "fill-opacity"}
ELEMENT = re.compile(r"<(rect|text|line|path|circle|tspan|polygon|polyline)((?:\s+[\w:-]+=\"[^\"]*\")+)")
OFTEN = 8  # times


def split(attributes):
    """(where the element is, how it looks)."""
    pairs = re.findall(r"([\w:-]+)=\"([^\"]*)\"", attributes)
    look = tuple(sorted((name, value) for name, value in pairs if name in LOOKS))
    return [(name, value) for name, value in pairs if name not in LOOKS], look


def picture(svg):
    """The SVG with a class for each look that many elements have."""
    if "<style" in svg or " class=" in svg:
        return svg
    count = Counter(split(match[2])[1] for match in ELEMENT.finditer(svg))
    often = [look for look, times in count.most_common() if times >= OFTEN and look]
    if not often:
        return svg
    names = {look: f"c{i}" for i, look in enumerate(often)}

    def short(match):
        place, look = split(match[2])
        if look not in names:
            return match[0]
        return f"<{match[1]} class=\"{names[look]}\"" + "".join(f' {name}="{value}"' for name, value in place)

    def css(look):
        # Lengths of SVG's attributes are pixels; a style sheet wants the unit.
        return ";".join(f"{name}:{value}{'px' if name == 'font-size' and re.fullmatch(r'[0-9.]+', value) else ''}"
                        for name, value in look)

    style = "".join(f".{name}{{{css(look)}}}" for look, name in names.items())
    head, end, rest = svg.partition(">")
    return f"{head}{end}<style>{style}</style>{ELEMENT.sub(short, rest)}"


# Parts of the theme that no page has: tabs in the text, blogs, tags, versions, other ways of writing ...
UNUSED = ("tabbed-", "[dir=rtl]", "md-tag", "md-post", "md-version", "md-consent", "mermaid", "critic", "task-list",
          "giscus", "md-social", "md-author", "md-progress", "md-feedback", ".abstract", ".success", ".question", ".failure",
          ".bug", ".example", ".quote")


def style_sheet(css):
    """Without the rules that match nothing. Minified CSS: no comments, no braces in strings that are not balanced."""
    result, i = [], 0
    while i < len(css):
        start = css.find("{", i)
        if start < 0:
            result.append(css[i:])
            break
        head = css[i:start]
        if ";" in head:  # @charset and the like come before
            done, _, head = head.rpartition(";")
            result.append(done + ";")
        depth, end = 1, start + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(css[end], 0)
            end += 1
        body = css[start + 1:end - 1]
        if head.startswith(("@media", "@supports", "@layer")):
            body = style_sheet(body)
            if body:
                result.append(f"{head}{{{body}}}")
        else:
            selectors = [s for s in re.split(r",(?![^(\[]*[)\]])", head) if not any(word in s for word in UNUSED)]
            if selectors:
                result.append(f"{','.join(selectors)}{{{body}}}")
        i = end
    return "".join(result)
