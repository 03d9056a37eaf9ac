"""Pages that come quickly: the theme's style sheet says nothing of what the book has not."""

import re

WORD = r"[\w-]+"
# Classes that scripts look for and do not make, and words that they have for something else.
NOT_MADE = re.compile(r"(tabbed|md-tag|md-version|md-source|md-status|md-consent|md-feedback|md-progress|md-tabs)([_-].*)?|"
                      "abstract|bug|danger|example|failure|info|note|question|quote|success|tip|warning|grid|footnote")
COLOURS = r"(data-md-color-\w+)=\"?([\w-]+)\"?"  # which of the theme's many


def words_of(pages, scripts):
    """What may be the name of a class: those of the pages, and the words of the scripts. And the pages' colours."""
    classes = (value for page in pages for value in re.findall(r"class=(\"[^\"]*\"|[\w-]+)", page))
    words = {word for script in scripts for word in re.findall(WORD, script) if not NOT_MADE.fullmatch(word)}
    words.update(name for value in classes for name in re.findall(WORD, value))
    return words.union(chosen for page in pages for chosen in re.findall(COLOURS, page))


def matches(selector, words):
    """Whether it may match: each of its classes is among the words, what :not() and the like have in brackets aside."""
    while "(" in selector:
        selector = re.sub(r"\([^()]*\)", "", selector)
    names = re.findall(r"\.([a-zA-Z_][\w-]*)", selector) + re.findall(rf"\[{COLOURS}\]", selector)
    return "[dir=rtl]" not in selector and all(name in words for name in names)


def style_sheet(css, words):
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
            body = style_sheet(body, words)
            if body:
                result.append(f"{head}{{{body}}}")
        else:
            selectors = [s for s in re.split(r",(?![^(\[]*[)\]])", head) if head.startswith("@") or matches(s, words)]
            if selectors:
                result.append(f"{','.join(selectors)}{{{body}}}")
        i = end
    return "".join(result)


DECLARED = re.compile(r"(--[\w-]+):(?:[^;{}\"()]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\))*;?(?=[^{]*})")


def without_unused_variables(css, readers):
    """The style sheet without the variables that neither `readers` nor itself ask for: icons are the largest."""
    used = set(re.findall(r"var\(\s*(--[\w-]+)", css + "".join(readers)))
    return DECLARED.sub(lambda match: match[0] if match[1] in used else "", css)


def without_blanks(css):
    """A style sheet of ours without comments and indentation."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", css)).strip()
