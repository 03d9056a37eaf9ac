// Addresses of shared memory as instructions take them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#ifndef __CUDACC__
#include "common/emulator/core/memory.h"
#endif

namespace ptx {

// cvta.to.shared: the 32-bit shared address of a generic pointer, in bytes (PTX ISA, "cvta").
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
#ifdef __CUDACC__
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
#else
  return emu::shared_address(pointer);
#endif
}

}  // namespace ptx
