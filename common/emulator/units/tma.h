// Bulk copies between global and shared memory, of boxes of tensors and of bytes in a row; and
// st.async, from registers to the shared memory of a CTA of the cluster.
//
// A copy is under way from its instruction on. When it happens is up to Options::completion: at
// once (early), not before a thread cannot go on without it (late, the latest one first), or at
// some point by the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/emulator/core/lane.h"
#include "common/ptx/tensor_map.h"

namespace emu {

void prefetch_tensor_map(const ptx::TensorMap& map, SourceLocation where);
void load_box(void* shared, const ptx::TensorMap& map, const int* coords, int rank, uint64_t* bar,
              SourceLocation where);
void load_box_multicast(void* shared, const ptx::TensorMap& map, const int* coords, int rank,
                        uint64_t* bar, uint16_t ctas, SourceLocation where);
void store_box(const ptx::TensorMap& map, const int* coords, int rank, const void* shared,
               SourceLocation where);
void load_bulk(void* shared, const void* global, int bytes, uint64_t* bar, SourceLocation where);
// 4, 8 or 16 bytes to where `shared` is in CTA `cta`, whose barrier at `bar` is told.
void store_async(void* shared, const void* value, int bytes, uint64_t* bar, int cta,
                 SourceLocation where);
void store_bulk(void* global, const void* shared, int bytes, SourceLocation where);
// Changes what lies in global memory, element by element, by what lies in shared memory. Each
// change is atomic; those of other CTAs come in the order of the CTAs, as all atomics do.
using Combine = std::function<void(void* global, const void* from, size_t bytes)>;
void reduce_bulk(void* global, const void* shared, int bytes, Combine combine,
                 SourceLocation where);
void add_floats(void* global, const void* from, size_t bytes);
void commit_bulk(SourceLocation where);
void wait_bulk(int groups, bool read, SourceLocation where);

}  // namespace emu
