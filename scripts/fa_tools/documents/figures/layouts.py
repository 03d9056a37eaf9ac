"""The formulas of common/layout by which figures are drawn, under their names there; tests/test_layouts.py holds them to the
C++. A position is (row, column)."""


def swizzle(row, chunk):
    return chunk ^ row % 8


# --- fragments.h: register i, half h of a lane -----------------------------------------------------------------------


def mma_a(lane, i, h):
    return lane // 4 + 8 * (i % 2), 2 * (lane % 4) + h + 8 * (i // 2)


def mma_b(lane, i, h):
    return 2 * (lane % 4) + h + 8 * i, lane // 4


def mma_c(lane, i):
    return lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2


def ldmatrix(lane, h):
    return lane // 4, 2 * (lane % 4) + h


def ldmatrix_trans(lane, h):
    return 2 * (lane % 4) + h, lane // 4


# --- wgmma.h ---------------------------------------------------------------------------------------------------------


def wgmma_d(thread, i):
    row, column = mma_c(thread % 32, i % 4)
    return thread // 32 * 16 + row, i // 4 * 8 + column


def start_field(address):
    return (address & 0x3ffff) >> 4


def leading_field(count):
    return start_field(count) << 16


def stride_field(count):
    return start_field(count) << 32


def base_offset_field(row):
    return (row & 7) << 49


def k_major_offset(span, leading, stride, mn, k):
    return mn // 8 * stride + mn % 8 * span + 2 * k // span * leading + 2 * k % span


def mn_major_offset(span, next_mn, next_k, mn, k):
    return 2 * mn // span * next_mn + 2 * mn % span + k // 8 * next_k + k % 8 * span


def slab_bytes(rows):
    return rows * 128


def slab_offset(rows, row, column):
    return column // 64 * slab_bytes(rows) + row * 128 + swizzle(row, column % 64 // 8) * 16 + column % 8 * 2


def k_major_step(rows, step):
    return step // 4 * slab_bytes(rows) + step % 4 * 32


def mn_major_step(step):
    return step * 16 * 128
