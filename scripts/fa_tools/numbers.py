"""How numbers are shortened, in documents and pictures and on terminals."""

import math

UNITS = (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")
SECONDS = (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")


def short(value):
    """Three significant digits: 652, 92.1, 7.90, 0.0123."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def amount(value, units=UNITS):
    """8.91 M, 622 k, 64."""
    return next((f"{short(value / size)} {unit}" for size, unit in units if value >= size), str(value))


def grouped(value):
    """1,103,600 of what is counted, otherwise 87.3 or 0.25."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if value >= 1 else f"{value:.2f}"


def percent(part, whole=1, form=".1f"):
    return f"{100 * part / whole:{form}} %"


def scientific(value):
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def milliseconds(value):
    """Four digits: 0.1869, 1.366, 390.0."""
    digits = 3 - math.floor(math.log10(value)) if value < 1000 else 0
    return f"{value:.{max(0, min(digits, 5))}f}"


def duration(seconds):
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"
