#include "tests/checked_kernels.h"

#include "common/harness/launch.h"

namespace probe {

int fault_line = 0;

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
  volatile float* const words = &fa::shared_storage<Tile<32>>().row[0][0];
  fault_line = __LINE__ + 1;
  words[32 * 32 + threadIdx.x] = 1.0f;
}

void run(Kernel kernel, const float* in, float* out, int count) {
  const int lane = int(threadIdx.x), i = int(blockIdx.x * 32 + threadIdx.x);
  volatile const float* const vin = in;  // volatile: the access stays as it is written
  volatile float* const vout = out;
  switch (kernel) {
    case Kernel::kCopy4:
      out[i] = in[i];
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
      if (lane == 7) (void)vin[count];
      break;
    case Kernel::kBeforeGlobal:
      fault_line = __LINE__ + 1;
      if (lane == 7) vout[-1] = 1.0f;
      break;
    case Kernel::kAcrossGlobal:
      fault_line = __LINE__ + 1;
      *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(in + count - 2);
      break;
    case Kernel::kPastShared:
      past_shared();
      break;
    case Kernel::kMisaligned4:
      fault_line = __LINE__ + 1;
      vout[0] = *reinterpret_cast<volatile const float*>(reinterpret_cast<const char*>(in) + 1);
      break;
    case Kernel::kMisaligned16:
      fault_line = __LINE__ + 1;
      *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(in + 1);
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
    case Kernel::kPastShared:
      return int(sizeof(Tile<32>));
    case Kernel::kSharedPadded:
      return int(sizeof(Tile<33>));
    default:
      return 0;
  }
}

}  // namespace probe
