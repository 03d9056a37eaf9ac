// What a launch may use, and what the launches of a kernel have used.
#include "common/launch/launch.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "common/launch/problem.h"
#include "common/launch/validation.h"

namespace fa {

LaunchRecord& launch_record() {
  thread_local LaunchRecord record;
  return record;
}

void*& launch_stream() {
  thread_local void* stream = nullptr;
  return stream;
}

void LaunchRecord::add(int registers_, size_t shared_bytes_, size_t local_bytes_) {
  registers = std::max(registers, registers_);
  shared_bytes = std::max(shared_bytes, shared_bytes_);
  local_bytes = std::max(local_bytes, local_bytes_);
}

void check_shared_bytes(size_t shared_bytes) {
  if (const std::string why = lack_of_shared(shared_bytes); !why.empty()) throw Unsupported(why);
}

void check_cluster(const LaunchShape& shape, int present) {
  constexpr int kMost =
      8;  // that every GPU with clusters has (CUDA C++ Programming Guide, "Thread Block Clusters")
  if (shape.cluster < 1 || shape.cluster > kMost || shape.grid.x % unsigned(shape.cluster) != 0) {
    throw BackendError("a cluster has 1 to " + std::to_string(kMost) +
                       " CTAs, and the grid's x a multiple of them: not " +
                       std::to_string(shape.cluster) + " in " + std::to_string(shape.grid.x));
  }
  if (shape.cluster > 1 && present > 0 && present < 90) {
    throw Unsupported("needs clusters, which a GPU has from compute capability 9.0 on, this one " +
                      ("has " + capability(present)));
  }
}

}  // namespace fa
