"""The ladder in numbers: how fast each kernel is on the book's card, and how many times as fast as the one before. Every picture, table and
chart that shows a step's factor takes it from here."""

from fa_tools.press.doc_tables import matching, read

TOKENS = 4096


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
