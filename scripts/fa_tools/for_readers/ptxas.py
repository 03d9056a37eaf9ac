"""Prints what ptxas says of a CUDA file: registers, spills, shared memory of every kernel, and its remarks. Compiled with
the build's flags; needs nvcc and c++filt, but no GPU."""

import re
import tempfile
import textwrap

from fa_tools.for_readers import sass
from fa_tools.tools import ROOT, Parser, busy, fail

EXAMPLE = """examples:
  scripts/fa ptxas kernels/08_swizzle.cu --only 'bfloat16, 128'
  scripts/fa ptxas tests/examples/serialised.cu --remarks

Exit code 4: nvcc is not here or does not compile the file."""


def said(log):
    """(mangled name or None, line) of what is worth showing, in ptxas's order."""
    name = None
    for line in log.splitlines():
        line = line.rstrip()
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name = match[1]
        elif match := re.search(r"\((C\d+)\).*", line):
            of = re.search(r"function '?(\w+?)'?$", line) or re.search(r"function (\w+)", line)
            yield of and of[1], match[0]
        elif ": Used " in line or "bytes stack frame" in line:
            yield name, line.rpartition(": ")[2].strip()


def main(argv=None):
    parser = Parser("ptxas", __doc__, EXAMPLE)
    parser.add_argument("file", metavar="KERNEL|FILE", help="a kernel (08, causal), or a .cu file of this repository")
    parser.add_argument("--arch", default="90a", metavar="ARCH", help="the GPU's architecture (default 90a)")
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name has TEXT in it")
    parser.add_argument("--remarks", action="store_true", help="only remarks (C7...), not registers")
    args = parser.parse_args(argv)
    if "." not in args.file:
        args.file = f"kernels/{sass.find_kernel(args.file)}.cu"
    if not (ROOT / args.file).is_file():
        fail(f"there is no file {args.file}")
    architecture, _ = sass.check_architecture(args.arch)
    nvcc, version = sass.find_nvcc()
    with tempfile.TemporaryDirectory() as folder, busy(f"compiling {args.file}"):
        command = sass.compile_command(nvcc, architecture, args.file, f"{folder}/out.cubin")
        lines = list(said(sass.finish(sass.start(*command), f"nvcc {version} on {args.file}")))
    names = sass.readable(list(dict.fromkeys(name for name, _ in lines if name)))
    print(f"{args.file}, sm_{architecture}, nvcc {version}")
    shown = None
    for name, line in lines:
        readable = names.get(name, "")
        remark = line.startswith("(C")
        if args.only not in readable or args.remarks and not remark:
            continue
        if readable != shown:
            print(f"\n{readable or 'of the file'}")
            shown = readable
        line = re.sub(r" +in (the )?function '?\w+'?", "", re.sub(r" in around line \d+", "", line))
        print(textwrap.fill(" ".join(line.split()), 98, initial_indent="  ", subsequent_indent="    "))
    return 0
