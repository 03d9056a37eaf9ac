// launch(): shared memory that differs from launch to launch, several GPUs, and CUDA graphs.
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/graph_order.h"
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

// ---- CUDA graphs --------------------------------------------------------------------------------
TEST(GraphOrder, NodesBesideAMarkedOne) {
  using Edges = std::vector<std::pair<size_t, size_t>>;
  const auto beside = [](const std::vector<size_t>& marked, size_t count, const Edges& edges) {
    std::vector<bool> marks(count);
    for (const size_t node : marked) marks[node] = true;
    return nodes_beside(marks, edges);
  };
  // change, start, launch, stop, check, start, launch, stop
  const Edges chain = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}};
  EXPECT_EQ(beside({1, 3, 5, 7}, 8, chain), 0u);
  EXPECT_EQ(beside({}, 9, chain), 0u) << "nothing is timed";
  const auto with = [&](std::vector<std::pair<size_t, size_t>> more) {
    more.insert(more.begin(), chain.begin(), chain.end());
    return beside({1, 3, 5, 7}, 9, more);
  };
  EXPECT_EQ(with({{1, 8}, {8, 3}}), 0u) << "a fork within an interval, joined before its end";
  EXPECT_EQ(with({}), 1u) << "nothing waits for it, and it waits for nothing";
  EXPECT_EQ(with({{1, 8}}), 1u) << "nothing waits for it";
  EXPECT_EQ(with({{0, 8}, {8, 2}}), 1u) << "it begins before the interval";
  EXPECT_EQ(with({{2, 8}, {8, 6}}), 1u) << "it ends in the next interval";
  EXPECT_EQ(with({{3, 8}, {8, 5}}), 0u) << "between two intervals";
  EXPECT_GT(beside({1, 2}, 4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}), 0u) << "two events";
}

#ifdef __CUDACC__
// A launch that forks the stream and does not join it before its time has been taken.
TEST(GraphOrder, WorkThatNoTimeWaitsForIsRefused) {
  const auto stream = static_cast<cudaStream_t>(work_stream());
  cudaStream_t other;
  cudaEvent_t forked, joined;
  ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&forked), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&joined), cudaSuccess);
  Buffer here("here", 1024), there("there", 1024);
  EventTimer timer;
  const auto record = [&](bool in_time) {
    LaunchGraph graph([&] {
      timer.start();
      here.poison();
      cudaEventRecord(forked, stream);
      cudaStreamWaitEvent(other, forked);
      cudaMemsetAsync(there.data(), 0, there.size(), other);
      cudaEventRecord(joined, other);
      if (in_time) cudaStreamWaitEvent(stream, joined);
      timer.stop();
      if (!in_time) cudaStreamWaitEvent(stream, joined);
    });
    graph.launch();
    synchronize();
  };
  record(true);
  try {
    record(false);
    ADD_FAILURE() << "it was recorded";
  } catch (const BackendError& error) {
    EXPECT_STREQ(error.what(),
                 "recording launches into a CUDA graph: of them 1 could run while a time is taken "
                 "that does not wait for them");
  }
  cudaStreamDestroy(other);
  cudaEventDestroy(forked);
  cudaEventDestroy(joined);
}

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
