"""The ladder in numbers: how fast each kernel is on the book's card, how many times as fast as the one before, and what held it up. Every
picture, table and chart that shows one of these takes it from here."""

from collections import namedtuple

from fa_tools.cards import BOOK
from fa_tools.documents.doc_tables import matching, metric_heading, read, rows_of
from fa_tools.for_readers.limits import machine_named
from fa_tools.tools import Refused

TOKENS = 4096
SCHEDULERS = 4  # of an SM
MOVED, BUSY, WAITED = "data to move", "a busy unit", "waiting"

# What held a kernel up is what the first rule says that holds: the counter of its profile is at least so many percent.
Rule = namedtuple("Rule", "counter least words kind")
FULL, LONG = 70, 12.5  # a unit that has hardly a cycle left; an eighth of a warp's time
RULES = (
    Rule("tensor_active_percent", 80, "the Tensor Cores", BUSY),
    Rule("shared_wavefronts_percent", FULL, "L1 and shared memory", MOVED),
    Rule("dram_percent", FULL, "HBM", MOVED),
    Rule("issue_active_percent", FULL, "issue slots", BUSY),
    Rule("xu_percent", FULL, "exponentials", BUSY),
    Rule("stall_barrier", LONG, "waits for other warps", WAITED),
    Rule("stall_long_scoreboard", LONG, "waits for global memory", WAITED),
    Rule("stall_short_scoreboard", LONG, "waits for shared memory", WAITED),
    Rule("stall_math_pipe_throttle", LONG, "waits for mma.sync", WAITED),
)
NOTHING = Rule(None, None, "waiting", WAITED)  # where no counter decides


def speeds():
    """{kernel: TFLOP/s}, 01 first, in the run of all kernels."""
    records = matching(read("bf16_d128"), {"seq_len": str(TOKENS), "kernel": "[01]*"})
    return dict(sorted((record["kernel"], record["tflops"]) for record in records))


def step_factors(found=None):
    """{kernel: its speed over that of the kernel before}, from the second on. found: other speeds than the book's, in order."""
    found = speeds() if found is None else found
    return {kernel: found[kernel] / found[before] for before, kernel in zip(found, [*found][1:])}


def factor(value):
    """x 11.5, x 1.02, x 0.63: enough digits to see a step of a percent."""
    return f"\u00d7 {value:.2f}" if value < 10 else f"\u00d7 {value:.1f}"


def launches():
    """{kernel: the metrics of its longest launch} of the profile."""
    found = {}
    for launch in read("profile")["records"]:
        found.setdefault(launch["kernel"], []).append(launch["metrics"])
    return {kernel: max(each, key=lambda metrics: metrics["cycles"]) for kernel, each in found.items()}


def kernels():
    """Those on the map: which have a speed and a profile."""
    profiled = launches()
    return [kernel for kernel in speeds() if kernel in profiled]


def percent_of(metrics, counter):
    """A counter in percent: of a unit's cycles, or, of a stall, of a warp's time."""
    if not counter.startswith("stall_"):
        return metrics[counter]
    resident = machine_named(BOOK)[1]["sm"]["warps"] / SCHEDULERS * metrics["warps_active_percent"]
    return 100 * metrics[counter] * metrics["issue_active_percent"] / resident


def held_up():
    """{kernel: (rule, percent, None if no counter decides)}"""
    found = {}
    for kernel, metrics in launches().items():
        holding = ((rule, value) for rule in RULES for value in [percent_of(metrics, rule.counter)] if value >= rule.least)
        found[kernel] = next(holding, (NOTHING, None))
    return found


def said(rule, value):
    return f"held up by {rule.words}" + ("" if value is None else f": {value:.0f} %")


def table(spec):
    """For the Markdown: the rules, and which kernels each decides."""
    if spec != "profile":
        raise Refused("what held kernels up is in the profile of the book's card")
    reasons = held_up()

    def decided(rule):
        cells = [kernel[:2] + ("" if value is None else f" ({value:.0f} %)") for kernel, (by, value) in sorted(reasons.items()) if by is rule]
        return ", ".join(cells) or "\u2013"

    return rows_of(["Counter", "At least", "Held up by", "Kernels"], [
        *([metric_heading(rule.counter).removesuffix(", %"), f"{rule.least:g} %", rule.words, decided(rule)] for rule in RULES),
        ["none of these", "", NOTHING.words, decided(NOTHING)]], (0, 2, 3))
