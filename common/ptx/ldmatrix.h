// ldmatrix and stmatrix: 8 x 8 matrices of 16-bit elements between shared memory and registers. PTX
// ISA, "Warp-level matrix load instruction: ldmatrix" (sm_75) and "... store instruction: stmatrix"
// (sm_90). Which lane holds which element: common/layout/fragments.h.
//
// All 32 lanes take part. Lane 8m + r gives the address of row r of matrix m: 16 bytes, a multiple
// of 16. Lanes whose matrix does not exist (x1, x2) give any address; it is not used.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ptx/hook.h"
#include "common/ptx/shared_address.h"  // IWYU pragma: export
#ifndef __CUDACC__
#include "common/emulator/units/matrix.h"
#endif

namespace ptx {

#ifdef __CUDACC__

__device__ __forceinline__ void ldmatrix_x1(uint32_t (&r)[1], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

// [ldmatrix-x4]
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// [/ldmatrix-x4]

__device__ __forceinline__ void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ void stmatrix_x1(const uint32_t (&r)[1], uint32_t address) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x2(const uint32_t (&r)[2], uint32_t address) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r[0]),
               "r"(r[1])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x4(const uint32_t (&r)[4], uint32_t address) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(const uint32_t (&r)[4], uint32_t address) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}
#endif

#else  // the emulator: common/emulator/units/matrix.cpp

#define FA_EMULATED(name, emulated, Register, count, transpose)                             \
  inline void name(Register(&r)[count], uint32_t address, Where where = Where::current()) { \
    emulated(r, count, transpose, address, where);                                          \
  }
FA_EMULATED(ldmatrix_x1, emu::load_matrices, uint32_t, 1, false)
FA_EMULATED(ldmatrix_x2, emu::load_matrices, uint32_t, 2, false)
FA_EMULATED(ldmatrix_x4, emu::load_matrices, uint32_t, 4, false)
FA_EMULATED(ldmatrix_x1_trans, emu::load_matrices, uint32_t, 1, true)
FA_EMULATED(ldmatrix_x2_trans, emu::load_matrices, uint32_t, 2, true)
FA_EMULATED(ldmatrix_x4_trans, emu::load_matrices, uint32_t, 4, true)
FA_EMULATED(stmatrix_x1, emu::store_matrices, const uint32_t, 1, false)
FA_EMULATED(stmatrix_x2, emu::store_matrices, const uint32_t, 2, false)
FA_EMULATED(stmatrix_x4, emu::store_matrices, const uint32_t, 4, false)
FA_EMULATED(stmatrix_x4_trans, emu::store_matrices, const uint32_t, 4, true)
#undef FA_EMULATED

#endif

}  // namespace ptx
