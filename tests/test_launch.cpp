// launch(): shared memory that differs from launch to launch, and several GPUs.
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "common/harness/device.h"
#include "common/launch/known_kernels.h"
#include "common/launch/launch.h"

namespace fa::test {
namespace {

// ---- what launch() remembers of a kernel --------------------------------------------------------
class KnownKernelsTest : public testing::Test {
 protected:
  // The bytes that were allowed, and how often attributes were read, by one call.
  struct Calls {
    std::vector<size_t> allowed;
    int reads = 0;
    bool operator==(const Calls&) const = default;
  };
  Calls prepare(int device, const void* kernel, size_t shared_bytes, bool refused = false) {
    Calls calls;
    const auto allow = [&] {
      if (refused) throw std::runtime_error("refused");
      calls.allowed.push_back(shared_bytes);
    };
    const auto read = [&] {
      calls.reads++;
      return device;
    };
    EXPECT_EQ(known_.prepare(device, kernel, shared_bytes, allow, read), device);
    return calls;
  }
  int one_ = 0, other_ = 0;

 private:
  KnownKernels<int> known_;
};

TEST_F(KnownKernelsTest, AreAllowedWhatTheyHaveNotHadYet) {
  EXPECT_EQ(prepare(0, &one_, 0), (Calls{{}, 1}));
  EXPECT_EQ(prepare(0, &one_, 60000), (Calls{{60000}, 0}));
  EXPECT_EQ(prepare(0, &one_, 60000), (Calls{{}, 0}));
  EXPECT_EQ(prepare(0, &one_, 70000), (Calls{{70000}, 0}));
  EXPECT_EQ(prepare(0, &one_, 65000), (Calls{{}, 0}));
}

TEST_F(KnownKernelsTest, AreKnownByDevice) {
  EXPECT_EQ(prepare(0, &one_, 60000), (Calls{{60000}, 1}));
  EXPECT_EQ(prepare(1, &one_, 50000), (Calls{{50000}, 1}));
  EXPECT_EQ(prepare(0, &other_, 50000), (Calls{{50000}, 1}));
  EXPECT_EQ(prepare(1, &one_, 60000), (Calls{{60000}, 0}));
}

TEST_F(KnownKernelsTest, ARefusalIsNoPermission) {
  EXPECT_EQ(prepare(0, &one_, 60000), (Calls{{60000}, 1}));
  EXPECT_THROW(prepare(0, &one_, 70000, true), std::runtime_error);
  EXPECT_EQ(prepare(0, &one_, 70000), (Calls{{70000}, 0}));
}

// ---- launches -----------------------------------------------------------------------------------
struct Storage {
  unsigned char first;
};

// Writes to every 256th byte of its shared memory and to the last, and counts those that hold what
// was written. kTag makes kernels of one text different ones.
template <int kTag>
__global__ void use_kernel(int bytes, int* held) {
  unsigned char* const memory = &shared_storage<Storage>().first;
  int count = 0;
  for (int i = 0; i < bytes; i += 256) memory[i] = static_cast<unsigned char>(i / 256 + kTag);
  memory[bytes - 1] = 77;
  for (int i = 0; i < bytes; i += 256) {
    count += memory[i] == static_cast<unsigned char>(i / 256 + kTag);
  }
  *held = count + (memory[bytes - 1] == 77);
}

template <int kTag>
void expect_holds(size_t bytes) {
  const Buffer held("held", sizeof(int));
  launch<use_kernel<kTag>>({dim3(1), dim3(1), bytes}, int(bytes), static_cast<int*>(held.data()));
  synchronize();
  int count = 0;
  held.download(&count);
  EXPECT_EQ(count, int((bytes + 255) / 256) + 1) << bytes << " bytes";
}

TEST(Launch, ALaterOneMayHaveMoreSharedMemory) {
  expect_holds<0>(1024);
  expect_holds<0>(device_shared_bytes() - 1024);
  expect_holds<0>(device_shared_bytes());
  expect_holds<0>(56 * 1024);
  EXPECT_GE(compiled_architecture<use_kernel<0>>(), 75);
}

TEST(Launch, ALaterOneMayNotHaveMoreThanThereIs) {
  expect_holds<1>(1024);
  EXPECT_THROW(expect_holds<1>(device_shared_bytes() + 1024), Unsupported);
  expect_holds<1>(device_shared_bytes());
}

#ifdef __CUDACC__
TEST(Launch, WorksOnEveryGpu) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "counting GPUs");
  for (int device = 0; device < count; device++) {
    check_cuda(cudaSetDevice(device), "choosing a GPU");
    expect_holds<2>(device_shared_bytes());
    expect_holds<2>(1024);
  }
  check_cuda(cudaSetDevice(0), "choosing a GPU");
}
#endif

}  // namespace
}  // namespace fa::test
