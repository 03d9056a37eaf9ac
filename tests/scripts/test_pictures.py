"""What the pictures are computed from: the kernels' constants, and the schedules of kernels 12 to 14."""

import sys
import unittest

from support import SCRIPTS, main

sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS / "lib"))
from drawing import constant, constant_of  # noqa: E402
from hopper_pictures import PRODUCT, REST, SOFTMAX, follow_ring, follow_turns  # noqa: E402

CONFIG = """struct Config {
  static constexpr int kGroups = 2;
  static constexpr int kThreads = (kGroups + 1) * 128;  // threads
  static constexpr int kLaunch = 65536 / kThreads / 8 * 8;
  static constexpr int kLow = 24, kHigh = 240;
  static constexpr int kStages = kHeadDim == 128 && kGroups == 2 ? 3 : kGroups * 2;
"""


class Constants(unittest.TestCase):
    def test_expressions(self):
        for name, head_dim, value in (("kThreads", 128, 384), ("kLaunch", 128, 168), ("kLow", 64, 24), ("kHigh", 64, 240),
                                      ("kStages", 128, 3), ("kStages", 64, 4)):
            self.assertEqual(constant_of(CONFIG, name, head_dim), value, name)
        with self.assertRaisesRegex(ValueError, "no kMissing"):
            constant_of(CONFIG, "kMissing", 128)

    def test_of_a_kernel(self):
        self.assertEqual(constant("13", "kThreads"), 384)
        self.assertEqual([constant("13", "kSlabs", head_dim) for head_dim in (64, 128)], [1, 2])


class Schedules(unittest.TestCase):
    def test_ring(self):
        for stages in (2, 3):
            ring = follow_ring(stages, 3 * stages)
            self.assertTrue(all(tile.asked < tile.arrives <= tile.read < tile.released for tile in ring))
            for tile, later in zip(ring, ring[stages:]):
                self.assertEqual((later.stage, later.phase), (tile.stage, tile.phase + 1))
                self.assertGreaterEqual(later.asked, tile.released)

    def test_turns(self):
        alone = [follow_turns(4, ping_pong=False, overlap=overlap, consumers=1) for overlap in (False, True)]
        periods = [turns[2].begin - turns[1].begin for turns in alone]
        self.assertEqual(periods, [2 * PRODUCT + SOFTMAX + REST, PRODUCT + max(PRODUCT, SOFTMAX) + REST])
        for overlap in (False, True):
            both = follow_turns(5, ping_pong=True, overlap=overlap, late={(1, 2): 3000})
            self.assertEqual([turn.consumer for turn in sorted(both, key=lambda turn: turn.begin)], [0, 1] * 5)
            self.assertGreater(max(turn.waits for turn in both if turn.consumer == 0), 1000)  # for the late one
            spans = sorted(at for turn in both for at in (turn.qk, turn.pv))
            self.assertTrue(all(second - first >= PRODUCT for first, second in zip(spans, spans[1:])))


if __name__ == "__main__":
    main()
