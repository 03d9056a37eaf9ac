#include "common/emulator/tests/checked_kernels.h"

#include <functional>

#include "common/launch/launch.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/exp2.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/wmma.h"

namespace probe {

int fault_line = 0;
int line_before = 0;

namespace {

template <int kColumns>
struct Tile {
  float row[32][kColumns];
};

template <int kColumns>
void shared_tile(float* out, bool by_column) {
  auto& tile = fa::shared_storage<Tile<kColumns>>();
  const int lane = int(threadIdx.x);
  volatile float& mine = by_column ? tile.row[lane][0] : tile.row[0][lane];
  mine = float(lane);
  out[lane] = mine;
}

void past_shared() {
  float* const words = &fa::shared_storage<Tile<33>>().row[0][0];
  fault_line = __LINE__ + 1;
  words[32 * 33 - 31 + threadIdx.x] = 1.0f;
}

// Inlined, its load would be one with another case's.
[[gnu::noinline]] void misaligned(const float* in, float* out) {
  const int lane = int(threadIdx.x);
  fault_line = __LINE__ + 1;
  out[lane] = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(in) + lane / 31);
}

struct Rows {
  alignas(128) __half half[64][64];  // 128 bytes a row: all rows begin in the same bank
  float column[32][32];
  alignas(128) float sums[16][16];
};

// What each line does is in test_checked.cpp.
void every_kind(const float* in, float* out) {
  auto& smem = fa::shared_storage<Rows>();
  const int lane = int(threadIdx.x) % 32;
  float* const column = &smem.column[lane][0];
  const uint32_t row = ptx::shared_address(&smem.half[lane][0]);
  const uint32_t swizzled = ptx::shared_address(&smem.half[lane][lane % 8 * 8]);
  uint32_t a[4], b[2] = {}, a8[2] = {}, b8[1] = {};
  float d[4] = {};
  ptx::FragmentA<__half> f;
  ptx::FragmentC sums;
  ptx::wmma::fill_fragment(sums, 0.0f);
  // clang-format off
  line_before = __LINE__;
  *column = in[lane * 4];
  __syncwarp();
  out[threadIdx.x] = *column;
  ptx::cp_async<16>(row, in + lane * 4);
  ptx::cp_async_zero_fill<16>(row, in + lane * 4, 4);
  ptx::cp_async_commit(); ptx::cp_async_wait<0>();
  __syncthreads();
  ptx::ldmatrix_x4(a, row);
  ptx::ldmatrix_x4(a, swizzled);
  ptx::stmatrix_x4(a, row);
  ptx::mma_m16n8k16<__half>(d, a, b);
  ptx::mma_m16n8k8<__half>(d, a8, b8);
  ptx::wmma::load_matrix_sync(f, &smem.half[0][0], 64);
  ptx::wmma::mma_sync(sums, f, ptx::FragmentB<__half>{}, sums);
  ptx::wmma::store_matrix_sync(&smem.sums[0][0], sums, 16, ptx::wmma::mem_row_major);
  d[0] += ptx::exp2_approx(d[1]) + fa::expf(d[2]);
  d[0] += __shfl_xor_sync(0xffffffffu, d[1], 1);
  d[0] += float(__any_sync(0xffffffffu, d[1] > 0));
  d[0] += ptx::to_float(smem.half[2 * lane][0]);
  // clang-format on
  volatile float keep = d[0];
  (void)keep;
}

void run(Kernel kernel, const float* in, float* out, int count) {
  const int lane = int(threadIdx.x), i = int(blockIdx.x * 32 + threadIdx.x);
  volatile const float* const vin = in;  // volatile: the access stays as it is written
  volatile float* const vout = out;
  switch (kernel) {
    case Kernel::kCopy4:
      out[i] = in[i];
      break;
    case Kernel::kCopyTo1:
      out[i + 1] = in[i];
      break;
    case Kernel::kCopy16:
      reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(in)[i];
      break;
    case Kernel::kCopy16ByRow:
      for (int k = 0; k < 4; k++) vout[i * 4 + k] = vin[i * 4 + k];
      break;
    case Kernel::kStrided:
      out[i] = in[32 * i];
      break;
    case Kernel::kBroadcast:
      out[i] = in[0];
      break;
    case Kernel::kHalfWarp:
      if (lane < 16) out[i] = in[i];
      break;
    case Kernel::kUneven:
      for (int k = 0; k <= lane % 3; k++) vout[i + 32 * k] = vin[i + 32 * k];
      break;
    case Kernel::kSharedRow:
      shared_tile<32>(out, false);
      break;
    case Kernel::kSharedColumn:
      shared_tile<32>(out, true);
      break;
    case Kernel::kSharedPadded:
      shared_tile<33>(out, true);
      break;
    case Kernel::kPastGlobal:
      fault_line = __LINE__ + 1;
      out[lane] = in[count - 31 + lane];
      break;
    case Kernel::kBeforeGlobal:
      fault_line = __LINE__ + 1;
      out[30 - lane] = 1.0f;
      break;
    case Kernel::kAcrossGlobal:
      fault_line = __LINE__ + 1;
      *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(in + count - 2);
      break;
    case Kernel::kPastShared:
      past_shared();
      break;
    case Kernel::kMisaligned4:
      misaligned(in, out);
      break;
    case Kernel::kMisaligned16:
      fault_line = __LINE__ + 1;
      *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(in + 1);
      break;
    case Kernel::kEveryKind:
      every_kind(in, out);
      break;
    case Kernel::kLong: {
      float sum = 0.0f;
      fault_line = __LINE__ + 1;
      for (int k = 0; k < 200000 && threadIdx.x == 0; k++) sum += in[k % count];
      if (threadIdx.x == 0) out[0] = sum;
      break;
    }
    case Kernel::kWithoutEnd:
      fault_line = __LINE__ + 1;
      for (int k = 0; in[k % count] == 1.0f; k = (k + 1) % count) out[k] = 2.0f;
      break;
    case Kernel::kStackOnly: {
      volatile float local[64];
      for (int k = 0; k < 64; k++) local[k] = float(k);
      (void)local[lane];
      break;
    }
  }
}

}  // namespace

std::function<void()> body(Kernel kernel, const float* in, float* out, int count) {
  return [=] { run(kernel, in, out, count); };
}

int shared_bytes(Kernel kernel) {
  switch (kernel) {
    case Kernel::kSharedRow:
    case Kernel::kSharedColumn:
      return int(sizeof(Tile<32>));
    case Kernel::kSharedPadded:
    case Kernel::kPastShared:
      return int(sizeof(Tile<33>));
    case Kernel::kEveryKind:
      return int(sizeof(Rows));
    default:
      return 0;
  }
}

}  // namespace probe
