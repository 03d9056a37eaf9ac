"""The page of the interfaces: what the docstrings of python/fa and the comments of common/api/fa.h say, with a heading of its
own for each name and parameter, so that the search finds it. It exists on the site only, and is made anew with it."""

import ast
import inspect
import re
from textwrap import dedent

from book import ROOT

API = "docs/api.md"  # where it would be
START = """# Python and C, name by name

The site makes this page from [python/fa](../python/fa) and [fa.h](../common/api/fa.h). Examples are in [Using the kernels](use.md).
"""
NAME = re.compile(r"`[^`]+`|\b(?:fa|torch)\.\w+(?:\([^()\s]*\))?|\b\w*[A-Za-z0-9]_\w+(?:\[[^\]]*\]|\(\))?|\{[^{}]*=[^{}]*\}")
PARAMETERS = re.compile(r"((?:\w+, )*\w+): (.+)", re.DOTALL)
HEADED = re.compile(r"Returns|Raises|The rest")  # words with which a docstring begins a part of its own


def marked_up(text):
    """Plain text as Markdown, with names as code."""
    parts = re.split(f"({NAME.pattern})", text)
    return "".join(f"`{part.strip('`')}`" if i % 2 else re.sub(r"([*<\\_])", r"\\\1", part) for i, part in enumerate(parts))


def told(docstring):
    """A docstring as Markdown, with a heading for each parameter."""
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if paragraph.startswith("    "):
            yield f"```python\n{dedent(paragraph)}\n```"
            continue
        for part in re.split(r"\n(?=(?:\w+, )*\w+: )", paragraph):
            found = PARAMETERS.fullmatch(part)
            if found:
                yield f"#### {marked_up(found[1])}"
            elif headed := HEADED.match(part):
                yield f"#### {headed[0]}"
            yield marked_up(found[2] if found else part)


def python():
    """The names of fa.__all__: functions, then classes."""
    folder = ROOT / "python" / "fa"
    package = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    names = next(ast.literal_eval(node.value) for node in package.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    yield "## Python"
    yield from told(ast.get_docstring(package))
    functions, classes = [], []
    for module in ("_attention", "_flash", "_cache", "_ring", "_library"):
        source = (folder / f"{module}.py").read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if getattr(node, "name", None) not in names:
                continue
            if any(getattr(decorator, "id", "") == "overload" for decorator in getattr(node, "decorator_list", ())):
                continue  # a signature for type checkers
            lines = source.splitlines()
            if isinstance(node, ast.FunctionDef):
                head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1]).removeprefix("def ").removesuffix(":").replace("\n ", "\n")
                functions += [f"### `fa.{node.name}`", f"```python\nfa.{head}\n```", *told(ast.get_docstring(node))]
                continue
            fields = [lines[field.lineno - 1].strip() for field in node.body if isinstance(field, ast.AnnAssign)]
            properties = [f"`{part.name}`: {marked_up(ast.get_docstring(part))}" for part in node.body
                          if isinstance(part, ast.FunctionDef) and not part.name.startswith("__")]
            classes += [f"### `fa.{node.name}`", *told(ast.get_docstring(node)), *(["```python\n" + "\n".join(fields) + "\n```"] if fields else []),
                        *properties]
    yield from [*functions, *classes, "### `fa.transformers`"]
    yield from told(ast.get_docstring(ast.parse((folder / "transformers.py").read_text(encoding="utf-8"))))


def header():
    """The declarations of fa.h, each below its comment."""
    source = (ROOT / "common" / "api" / "fa.h").read_text(encoding="utf-8")
    yield "## C"
    for comment, code in re.findall(r"^(?:/\*(.*?)\*/\n)?((?:typedef|FA_API|#ifndef FA_H)\b.*?)(?=\n\n|\Z)", source, re.MULTILINE | re.DOTALL):
        name = re.search(r"typedef \w+ (\w+)|(fa_\w+)\(", code)
        if name:
            yield f"### `{name[1] or name[2]}`"
        yield from map(marked_up, re.sub(r"^ \* ?", "", comment.strip(), flags=re.MULTILINE).split("\n\n"))
        if name:
            yield f"```c\n{code}\n```"


def text():
    return "\n\n".join([START.rstrip(), *(part for part in [*python(), *header()] if part)]) + "\n"
