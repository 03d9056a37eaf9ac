// The warp's matrix instructions: ldmatrix, stmatrix, mma.sync.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/emulator/core/lane.h"

namespace emu {

// ldmatrix.x<count>[.trans], stmatrix.x<count>[.trans]: `registers` has `count` elements.
void load_matrices(uint32_t* registers, int count, bool transpose, uint32_t address,
                   SourceLocation where);
void store_matrices(const uint32_t* registers, int count, bool transpose, uint32_t address,
                    SourceLocation where);

enum class Element : uint8_t { kFp16, kBf16 };

// mma.sync.m16n8k<depth>, depth 8 or 16: d[4] += A fragment a[depth / 4] * B fragment b[depth / 8].
void multiply_accumulate(float* d, const uint32_t* a, const uint32_t* b, int depth, Element element,
                         SourceLocation where);

// sums[row][column] += sum over k of a[row][k] * b[column][k], as a Tensor Core adds: 16 x
// `columns` sums, `pitch` floats a row. `columns` is a multiple of 8.
void multiply_strip(const uint16_t (&a)[16][16], const uint16_t (*b)[16], int columns,
                    Element element, float* sums, int pitch);

}  // namespace emu
