"""The online softmax on one row, tile by tile, beside the three passes of the formula: the example of docs/02_online_softmax.md.

A row's state is three things: m, the largest score so far; l, the sum of e^(s - m); o, the sum of e^(s - m) v. A tile of
keys updates them (add_tile), two states of different keys make one (merge), and o / l is the output at any time."""

import math
from collections import namedtuple

from fa_tools.tools import Parser, fail

EXAMPLE = """examples:
  scripts/fa softmax
  scripts/fa softmax --scores 5,1,1,1 --values 1,0,0,0 --tile 1

Exit code: 0 done, 2 bad arguments."""

SCORES, VALUES, TILE = (1, 3, 2, 5, 4, 0), (10, 20, 30, 40, 50, 60), 2  # the scores of picture 02_online

State = namedtuple("State", "m l o")
NOTHING = State(-math.inf, 0.0, 0.0)  # before the first key


# [update]
def add_tile(state, scores, values):
    """The state after one more tile; also the factor, and the weights P."""
    m = max(state.m, *scores)
    rescale = math.exp(state.m - m)  # 0 in the first tile: e^-inf
    weights = [math.exp(s - m) for s in scores]
    l = state.l * rescale + sum(weights)
    o = state.o * rescale + sum(p * v for p, v in zip(weights, values))
    return State(m, l, o), rescale, weights
# [/update]


# [merge]
def merge(a, b):
    """The state of the keys of both; associative, and NOTHING changes nothing."""
    m = max(a.m, b.m)
    if m == -math.inf:  # no key in either: -inf - -inf would be NaN
        return NOTHING
    of_a, of_b = math.exp(a.m - m), math.exp(b.m - m)
    return State(m, a.l * of_a + b.l * of_b, a.o * of_a + b.o * of_b)
# [/merge]


def three_passes(scores, values):
    """The formula: the maximum, then the weights and their sum, then the output."""
    m = max(scores)
    weights = [math.exp(s - m) for s in scores]
    l = sum(weights)
    return State(m, l, sum(p * v for p, v in zip(weights, values)))


def tiles_of(scores, tile):
    return [range(first, min(first + tile, len(scores))) for first in range(0, len(scores), tile)]


def numbers(text, name):
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        fail(f"--{name} takes numbers with commas between them, not {text}")
    return found


def listed(values, form):
    return ", ".join(format(value, form) for value in values)


def main():
    parser = Parser("softmax", __doc__, EXAMPLE)
    parser.add_argument("--scores", default=listed(SCORES, "g").replace(" ", ""), metavar="S,S,...",
                        help="the row's scores, one per key (default: %(default)s)")
    parser.add_argument("--values", default=listed(VALUES, "g").replace(" ", ""), metavar="V,V,...",
                        help="one column of V, one value per key (default: %(default)s)")
    parser.add_argument("--tile", type=int, default=TILE, metavar="N", help=f"keys per tile (default: {TILE})")
    args = parser.parse_args()
    scores, values = numbers(args.scores, "scores"), numbers(args.values, "values")
    if len(scores) != len(values):
        fail(f"there are {len(scores)} scores and {len(values)} values; each key needs both")
    if not 1 <= args.tile <= 4:
        fail(f"--tile must be between 1 and 4, not {args.tile}")
    print(f"One row of S: {listed(scores, 'g')}")
    print(f"one column of V: {listed(values, 'g')}; {args.tile} keys per tile\n")
    left, right = max(8, 6 * args.tile), max(13, 8 * args.tile)
    print(f"{'tile':<5}{'scores':<{left}}{'m':>4}{'rescale':>8}  {'P = e^(s - m)':<{right}}{'l':>8}{'o':>9}{'o / l':>8}")
    state = NOTHING
    for number, tile in enumerate(tiles_of(scores, args.tile)):
        state, rescale, weights = add_tile(state, [scores[j] for j in tile], [values[j] for j in tile])
        print(f"{number:<5}{listed([scores[j] for j in tile], 'g'):<{left}}{state.m:>4g}{rescale:>8.4f}  "
              f"{listed(weights, '.4f'):<{right}}{state.l:>8.4f}{state.o:>9.4f}{state.o / state.l:>8.4f}")
    exact = three_passes(scores, values)
    print(f"\nThree passes over the row: m = {exact.m:g}, l = {exact.l:.4f}, o = {exact.o:.4f}, O = {exact.o / exact.l:.4f}")
    return 0
