"""Code as HTML: CUDA with this repository's words, PTX, SASS, and diffs whose lines are highlighted as CUDA."""

import re
from html import escape

from pygments.lexer import RegexLexer, bygroups
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.shell import BashLexer
from pygments.lexers.special import TextLexer
from pygments.token import STANDARD_TYPES, Comment, Generic, Keyword, Name, Number, Operator, Punctuation, Text
from pygments.util import ClassNotFound

# Words of PTX, in our wrappers (ptx::cp_async_wait) and in PTX itself (cp.async.wait_group).
PTX_WORDS = (
    "cp_async|wgmma|mbarrier|ldmatrix|stmatrix|mma|fence|setmaxnreg|elect|barrier|cluster|tma|ex2|exp2|prefetch|"
    "shared_address|named_barrier|map_shared|arrive"
)


class Cuda(CudaLexer):
    """Pygments' CUDA, and what came with later compilers and with common/ptx."""

    name, aliases, filenames = "CUDA of this repository", ["cuda"], []
    qualifiers = {
        "__grid_constant__", "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__global__", "__device__",
        "__host__", "__forceinline__", "__noinline__", "__restrict__",
    }
    types = {
        "half", "half2", "__half", "__half2", "__nv_bfloat16", "__nv_bfloat162", "uint32_t", "uint64_t", "uint16_t",
        "int64_t", "int32_t", "uint8_t", "size_t", "uintptr_t", "TensorMap",
    }
    intrinsic = re.compile(r"__(shfl|syncwarp|syncthreads|ballot|any|all|activemask|ldg|float|half|bfloat|low|high)\w*")
    wrapper = re.compile(rf"({PTX_WORDS})(_\w+)?|\w+_(async|sync)\w*")

    def get_tokens_unprocessed(self, text, stack=("root",)):
        before = ""
        for index, token, value in super().get_tokens_unprocessed(text, stack):
            if value in self.qualifiers:
                token = Keyword.Reserved
            elif value in self.types:
                token = Keyword.Type
            elif token in Name:
                if value == "ptx" or (before.endswith("ptx::") and token in Name):
                    token = Name.Builtin.Pseudo
                elif self.intrinsic.fullmatch(value):
                    token = Name.Builtin
                elif token is Name and self.wrapper.fullmatch(value) and text[index + len(value):index + len(value) + 1] in "(<":
                    token = Name.Builtin.Pseudo
            before = (before + value)[-8:]
            yield index, token, value


class Ptx(RegexLexer):
    name, aliases = "PTX", ["ptx"]
    tokens = {"root": [
        (r"//.*?$", Comment.Single),
        (r"/\*.*?\*/", Comment.Multiline),
        (r"(@)(!?)(%?\w+)", bygroups(Operator, Operator, Name.Variable)),
        (r"\.(reg|visible|entry|func|param|shared|global|const|local|align|version|target|address_size|loc|file|maxntid)\b",
         Keyword.Reserved),
        (r"\.(pred|b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f16x2|f16|bf16x2|bf16|tf32|f32|f64)\b", Keyword.Type),
        (r"%\w+(\.\w+)?", Name.Variable),
        (r"0[xXfFdD][0-9a-fA-F]+|\d+(\.\d+)?", Number),
        (r"^(\s*)([\w$]+)(:)", bygroups(Text, Name.Label, Punctuation)),
        (r"[a-z]\w*(?=(\.\w|\s|;))", Name.Builtin.Pseudo),
        (r"(\.)([\w:]+)", bygroups(Punctuation, Name.Attribute)),
        (r"[{}()\[\],;+|<>=-]", Punctuation),
        (r"\s+", Text),
        (r".", Text),
    ]}


class Sass(RegexLexer):
    name, aliases = "SASS", ["sass"]
    tokens = {"root": [
        (r"//.*?$|/\*.*?\*/", Comment),
        (r"^\s*#.*?$", Comment.Single),
        (r"@!?U?P\w+", Name.Variable),
        (r"\b(U?R(Z|\d+)|U?P(T|\d+)|B\d+|SR_[\w.]+|SB\d+)(\.\w+)*\b", Name.Variable),
        (r"\b(c|desc|gdesc|tma)(?=\[)", Keyword.Type),
        (r"-?\b(0x[0-9a-f]+|\d+(\.\d+)?)\b", Number),
        (r"\b([A-Z][A-Z0-9]+)((?:\.[A-Z0-9_x]+)*)\b", bygroups(Name.Builtin.Pseudo, Name.Attribute)),
        (r"[{}()\[\],;+|<>=-]", Punctuation),
        (r"\s+", Text),
        (r".", Text),
    ]}


class Session(RegexLexer):
    """What a program printed: its command line stands out, what went wrong too."""

    name, aliases = "Output", ["text"]
    tokens = {"root": [
        (r"^(\$ )(.*\n?)", bygroups(Generic.Prompt, Generic.Strong)),
        (r".+\n?|\n", Text),
    ]}


LEXERS = {"cuda": Cuda, "cu": Cuda, "ptx": Ptx, "sass": Sass, "text": Session, "": TextLexer, "console": Session}


def lexer_of(language):
    language = {"gdb": "bash"}.get(language, language)
    if language in LEXERS:
        return LEXERS[language](ensurenl=False, stripnl=False)
    try:
        return get_lexer_by_name(language, ensurenl=False, stripnl=False)
    except ClassNotFound:
        raise ValueError(f"no highlighting for `{language}`") from None


def lexer_of_file(path):
    if path.suffix in (".cu", ".h", ".cuh", ".cpp"):
        lexer = Cuda
    elif path.suffix in (".txt", ".sass", ".in", "") and path.name != "CMakeLists.txt":
        lexer = TextLexer
    elif path.suffix in (".patch", ".diff"):
        return None  # a diff
    elif path.suffix == ".gdb":
        lexer = BashLexer
    else:
        try:
            lexer = get_lexer_for_filename(path.name).__class__
        except ClassNotFound:
            lexer = TextLexer
    return lexer(ensurenl=False, stripnl=False)


PLAIN = {"n", "p", "o", "w", "x", "mi", "mf", "mh", "no"}  # in the colour of the text: without a <span>, pages have half the size


def css_class(token):
    while token not in STANDARD_TYPES:
        token = token.parent
    name = STANDARD_TYPES[token]
    return "" if name in PLAIN else name


SAME = re.compile(r"(<i class=(\w+)>[^<]*)</i>(\s*)<i class=\2>")


def joined(html):
    """Neighbours of the same class as one: they look the same, and pages get smaller."""
    while html != (shorter := SAME.sub(r"\1\3", html)):
        html = shorter
    return html


def lines_of(code, lexer):
    """Each line as HTML. Words are in <i class=...>, which is the shortest that scripts and style sheets understand."""
    lines, line = [], []
    for token, value in lexer.get_tokens(code + "\n"):  # lexers know the end of a // comment by it
        name = css_class(token)
        for i, part in enumerate(value.split("\n")):
            if i:
                lines.append(joined("".join(line)))
                line = []
            if part:
                html = escape(part, quote=False)
                line.append(f"<i class={name}>{html}</i>" if name else html)
    return lines


def diff_lines(code):
    """The lines of a diff: + and - by the line's background (<ins> and <del>), what follows as CUDA."""
    source = code.split("\n")
    head = re.compile(r"(---|\+\+\+|@@|diff |index )")
    bodies = [line[1:] if line and not head.match(line) else "" for line in source]
    highlighted = lines_of("\n".join(bodies), lexer_of("cuda"))
    result = []
    for line, html in zip(source, highlighted):
        if head.match(line):
            result.append(f"<i class=gu>{escape(line, quote=False)}</i>")
        elif line[:1] in ("+", "-"):
            tag = "ins" if line[0] == "+" else "del"
            result.append(f"<{tag}>{line[0]}{html}</{tag}>")
        else:
            result.append(line[:1] + html)
    return result


def block(lines, language, notes=None):
    """notes: {line index: number of the remark}; the theme turns them into buttons that show list items."""
    lines = list(lines)
    for index, number in (notes or {}).items():
        lines[index] += f'  <span class="c1">// ({number})!</span>'
    kind = " annotate" if notes else ""
    name = re.sub(r"\W", "", language) or "text"
    skip = " data-search-exclude" if language in ("diff", "text") else ""
    html = joined(re.sub(r"</(ins|del)>\n<\1>", "\n", "\n".join(lines)))
    return f'<div class="language-{name} highlight{kind}"{skip}><pre><span></span><code>{html}\n</code></pre></div>\n'


def fence(code, language, notes=None):
    code = code.rstrip("\n")
    lines = diff_lines(code) if language == "diff" else lines_of(code, lexer_of(language))
    return block(lines, language, notes)
