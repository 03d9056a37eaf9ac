"""Shows what the compiler makes of a kernel: registers, shared memory, occupancy, the instructions of one iteration
of its main loop by kind (SASS, the GPU's own code), and its PTX. Needs nvcc, nvdisasm and g++, but no GPU."""

import os
import re
from collections import Counter
from pathlib import Path

from fa_tools.for_readers.sass import (KINDS, PTX_OF_INTEREST, Missing, check_architecture, check_needs, compile_kernel,
                                  find_kernel, kind_of, main_loop, mix, occupancy, product_flops, ptx_family, ptx_opcodes)
from fa_tools.numbers import percent
from fa_tools.tools import ROOT, Parser, Refused, write_whole

EXAMPLE = """examples:
  scripts/fa inspect 08                                  bf16, head_dim 128, sm_90a
  scripts/fa inspect 04_wmma --arch 80 --dtype fp16 --head-dim 64
  scripts/fa inspect 07 --loop                           the main loop's SASS beside its source lines
  scripts/fa inspect 15 --control --from HGMMA           stall counts and scoreboards, from the first product on

Exit code: 0 done, 2 bad arguments or file, 4 a tool is missing or does not compile the kernel."""


# --- Report ----------------------------------------------------------------------------------------------------


def relative(file):
    """A source file as its name in the checkout; one of CUDA's headers as its bare name."""
    path = Path(os.path.normpath(file))
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def line_in(kernel, instruction):
    """The line of the kernel's file that an instruction is for, the outermost if functions were inlined; or None."""
    source = f"kernels/{kernel}.cu"
    return next((line for file, line in reversed(instruction.places) if relative(file) == source), None)


def describe_loop(build, loop, launch, head_dim):
    code = loop.instructions
    lines = [line for line in (line_in(build.kernel, x) for x in code) if line]
    flops = sum(product_flops(x.opcode) for x in code)
    result = {
        "chosen": loop.why,
        "first_address": code[0].address,
        "last_address": code[-1].address,
        "source_lines": [min(lines), max(lines)] if lines else None,
        "instructions": len(code),
        "inner_loops": loop.inner_loops,
        "hmma": sum(kind_of(x) == "HMMA" for x in code),
        "flops_per_warp": flops,
        "mix": {kind: {"count": sum(opcodes.values()), "opcodes": dict(opcodes.most_common())}
                for kind, opcodes in mix(code).items()},
    }
    # Two products of rows x keys x head_dim each give the keys. A CTA's rows follow from the grid; a warpgroup, which
    # may be one of several kinds, multiplies 64.
    if any(x.base == "HGMMA" for x in code):
        result["rows_of"], rows, rest, warps = "warpgroup", 64, 0, 4
    else:
        result["rows_of"], warps = "CTA", launch["threads"] // 32
        rows, rest = divmod(launch["seq_len"], launch["grid"][0])
    keys, left = divmod(flops * warps, 4 * rows * head_dim) if rows and not rest else (0, 1)
    if flops and not left and not loop.inner_loops:
        result.update(query_rows=rows, keys=keys)
    return result


def describe(build, dtype, head_dim):
    """One report (a dict) for each kernel function that this type and head size launch."""
    launches = [x for x in build.launches if (x["dtype"], x["head_dim"]) == (dtype, head_dim)]
    reports = []
    for launch in launches:
        mangled = next((m for m, name in build.names.items() if name == launch["function"]), None)
        if mangled is None or mangled not in build.resources:
            raise Missing(f"{launch['function']} is launched, but the compiled code has no kernel of that name")
        if any(report["symbol"] == mangled for report in reports):
            continue
        function, resources = build.sass[mangled], build.resources[mangled]
        shared = launch["shared_bytes"] + resources["static_shared_bytes"]
        loop, opcodes = main_loop(function), ptx_opcodes(build.ptx[mangled])
        families = Counter()
        for opcode, count in opcodes.items():
            families[ptx_family(opcode)] += count
        reports.append({
            "kernel": build.kernel, "function": re.sub(r"^(\w+::)+", "", launch["function"]), "symbol": mangled,
            "architecture": f"sm_{build.architecture}", "nvcc": build.nvcc, "dtype": dtype, "head_dim": head_dim,
            **resources,
            "dynamic_shared_bytes": launch["shared_bytes"], "threads": launch["threads"],
            "occupancy": occupancy(build.capability, resources["registers"], shared, launch["threads"]),
            "instructions": len(function.trimmed()),
            "main_loop": loop and describe_loop(build, loop, launch, head_dim),
            "ptx": {"instructions": sum(opcodes.values()), "families": dict(families.most_common()),
                    "of_interest": {opcode: count for opcode, count in opcodes.most_common()
                                    if ptx_family(opcode) in PTX_OF_INTEREST}},
        })
    return reports


def opcode_list(opcodes, width):
    """'FFMA 96, FMUL 32, ...' in `width` columns."""
    parts = [f"{opcode} {count:,}" for opcode, count in opcodes.items()]
    for shown in range(len(parts), 0, -1):
        text = ", ".join(parts[:shown] + ["..."] * (shown < len(parts)))
        if len(text) <= width:
            return text
    return "..." if parts else ""


def show(report):
    """The report as text, at most 100 columns wide."""

    def row(name, value):
        return f"  {name:<24}{value}"

    warps = -(-report["threads"] // 32)
    several = "s" * (report["occupancy"]["ctas"] != 1)
    shared = report["dynamic_shared_bytes"] + report["static_shared_bytes"]
    static = f", {report['static_shared_bytes']:,} of them static" if report["static_shared_bytes"] else ""
    fits = report["occupancy"]
    lines = [
        report["function"],
        "",
        row("registers per thread", report["registers"]),
        row("spilled", f"{report['spill_store_bytes']:,} bytes stored, {report['spill_load_bytes']:,} "
            "bytes loaded"),
        row("stack", f"{report['stack_bytes']:,} bytes"),
        row("shared memory a CTA", f"{shared:,} bytes{static}"),
        row("threads a CTA", f"{report['threads']} ({warps} warp{'s' * (warps != 1)})"),
        row("occupancy", f"{fits['ctas']} CTA{several} an SM: {fits['warps']} of {fits['most_warps']} "
            f"warps, {percent(fits['warps'], fits['most_warps'])}"),
        row("limited by", " and ".join(fits["limited_by"])),
        row("CTAs that would fit by", ", ".join(f"{name} {count}" for name, count in fits["ctas_by_resource"].items())),
        row("instructions", f"{report['instructions']:,} SASS, {report['ptx']['instructions']:,} PTX"),
        "",
    ]
    loop = report["main_loop"]
    if loop is None:
        lines += ["Main loop: none found"]
    else:
        lines += ["Main loop", "", row("which", loop["chosen"]),
                  row("addresses", f"{loop['first_address']:#06x} to {loop['last_address']:#06x}")]
        if loop["source_lines"]:
            lines.append(row("source", "kernels/{}.cu, lines {} to {}".format(report["kernel"], *loop["source_lines"])))
        lines.append(row("instructions", f"{loop['instructions']:,}"))
        if loop["inner_loops"]:
            lines.append(row("inner loops", f"{loop['inner_loops']}, whose instructions count once here"))
        if loop["flops_per_warp"]:
            flops = loop["flops_per_warp"]
            each = f" of {flops // loop['hmma']:,} FLOPs" if flops % loop["hmma"] == 0 else ""
            lines.append(row("matrix products", f"{loop['hmma']:,} HMMA{each}: {flops:,} FLOPs a warp"))
        if "keys" in loop:
            lines.append(row("one iteration", f"{loop['keys']} keys for the {loop['query_rows']} query rows of a "
                             f"{loop['rows_of']}"))
        lines += ["", f"  {'Kind':<16}{'For':<26}{'Count':>7}{'Share':>9}  Opcodes"]
        for kind, entry in loop["mix"].items():
            share = percent(entry["count"], loop["instructions"])
            text = f"  {kind:<16}{KINDS[kind][0]:<26}{entry['count']:>7,}{share:>9}  "
            lines.append((text + opcode_list(entry["opcodes"], 100 - len(text))).rstrip())
    ptx = report["ptx"]
    lines += ["", f"  {'PTX':<66}{'Count':>7}{'Share':>9}"]
    # The ten most frequent, and those of interest wherever they are, each form of them below.
    for i, (family, count) in enumerate(ptx["families"].items()):
        forms = {o: c for o, c in ptx["of_interest"].items() if ptx_family(o) == family}
        if i >= 10 and not forms:
            continue
        lines.append(f"  {family:<66}{count:>7,}{percent(count, ptx['instructions']):>9}")
        if list(forms) != [family]:
            lines += [f"    {opcode:<64}{number:>7,}" for opcode, number in forms.items()]
    return "\n".join(lines)


def show_loop(build, report):
    """The main loop's instructions, each beside the line of the kernel's file that it is for."""
    loop = main_loop(build.sass[report["symbol"]])
    source = (ROOT / "kernels" / f"{build.kernel}.cu").read_text(encoding="utf-8").splitlines()
    lines = [f"{report['function']}, main loop, sm_{build.architecture}, nvcc {build.nvcc}"]
    for instruction in loop.instructions if loop else []:
        line = line_in(build.kernel, instruction)
        beside = f"{line:>4} {source[line - 1].strip()}" if line else ""
        lines.append(f"{instruction.address:04x}  {instruction.text[:50]:<52}{beside}"[:100].rstrip())
    return "\n".join(lines)


def show_control(build, report, places, count):
    """`count` instructions of the main loop from each place on, the first whose opcode begins so, with what the compiler
    says to the scheduler."""
    loop = main_loop(build.sass[report["symbol"]])
    code = loop.instructions if loop else []
    lines = [f"{report['function']}, main loop, sm_{build.architecture}, nvcc {build.nvcc}",
             "addr stall   sets   waits   instruction                                                       line"]
    for place in places:
        begin = next((i for i, x in enumerate(code) if x.opcode.startswith(place)), None)
        if begin is None:
            raise Refused(f"the main loop of {report['function']} has no instruction {place}")
        if place != places[0]:
            lines.append("...")
        for x in code[begin : begin + count]:
            control = x.control
            sets = " ".join(f"{kind}{number}" for kind, number in (("w", control.written), ("r", control.read)) if number < 6)
            waits = " ".join(map(str, control.waits))
            line = line_in(build.kernel, x)
            lines.append(f"{x.address:04x} {control.stall:>3} {'y' if control.yields else ' '}   {sets:<6} {waits:<7} "
                         f"{x.text[:64]:<66}{line or '':>4}".rstrip())
    return "\n".join(lines)


# --- Command line ----------------------------------------------------------------------------------------------


def main(argv=None):
    parser = Parser("inspect", __doc__, EXAMPLE)
    parser.add_argument("kernel", help="its number, name or the beginning of its name")
    parser.add_argument("--arch", default="90a", metavar="ARCH", help="the GPU's architecture (default 90a)")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16"], help="default bf16")
    parser.add_argument("--head-dim", type=int, default=128, choices=[64, 128], help="default 128")
    parser.add_argument("--loop", action="store_true", help="print the main loop's SASS beside its source instead")
    parser.add_argument("--control", action="store_true", help="print instructions of the main loop with the compiler's "
                        "notes to the scheduler instead")
    parser.add_argument("--from", dest="places", default="", metavar="OPCODES", help="with --control: from the first of each on")
    parser.add_argument("--lines", type=int, default=32, metavar="N", help="with --control: so many from each (default 32)")
    parser.add_argument("--sass", metavar="FILE", help="save the kernel's SASS, with source lines")
    parser.add_argument("--ptx", metavar="FILE", help="save the kernel's PTX")

    args = parser.parse_args(argv)
    kernel = find_kernel(args.kernel)
    check_needs(kernel, *check_architecture(args.arch), args.dtype)
    build = compile_kernel(kernel, args.arch, encodings=args.control)
    reports = describe(build, args.dtype, args.head_dim)
    control = [show_control(build, report, args.places.split(","), args.lines) for report in reports] if args.control else []
    if args.sass:
        listings = [build.sass[report["symbol"]] for report in reports]
        text = "".join("\n".join([f"{x.name}:", *x.listing]).rstrip() + "\n\n" for x in listings)
        write_whole(args.sass, text.replace(f"{ROOT}/", ""))
    if args.ptx:
        write_whole(args.ptx, "".join(f"{build.ptx[report['symbol']]}\n\n" for report in reports).replace(f"{ROOT}/", ""))
    if args.control:
        print("\n\n".join(control))
    elif args.loop:
        print("\n\n".join(show_loop(build, report) for report in reports))
    else:
        print(f"{kernel}, {args.dtype}, head_dim {args.head_dim}, sm_{build.architecture}, nvcc {build.nvcc}\n")
        print("\n\n".join(show(report) for report in reports))
    return 0
