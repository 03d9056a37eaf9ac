// What a problem and its tensors must be, and why a kernel does not take them.
#include "common/launch/validation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/launch/device.h"
#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

bool& as_options() {
  static bool as_options = false;
  return as_options;
}

std::string text_of(const Window& window) {
  return std::to_string(window.left) + "," + std::to_string(window.right);
}

}  // namespace

std::string capability(int value) {
  return std::to_string(value / 10) + "." + std::to_string(value % 10);
}

std::string lack_of_shared(size_t bytes) {
  const size_t most = device_shared_bytes();
  if (bytes <= most) return "";
  return "needs " + std::to_string(bytes) + " bytes of shared memory a CTA, this GPU has " +
         std::to_string(most);
}

void name_fields_as_options() { as_options() = true; }

std::string field(std::string_view name) {
  if (!as_options()) return std::string(name);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOthers = {
      {{"cu_seqlens", "lengths"},
       {"kv_lens", "kv-lengths"},
       {"alibi_slopes", "alibi"},
       {"sinks", "sink"}}};
  for (const auto& [own, option] : kOthers) {
    if (name == own) return "--" + std::string(option);
  }
  std::string option = "--" + std::string(name);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

void validate(const Problem& problem, bool any_length) {
  constexpr int kMostTokens = 1 << 22;
  if (problem.batch < 1) throw BadInput(field("batch") + " must be at least 1");
  if (problem.heads < 1) throw BadInput(field("heads") + " must be at least 1");
  if (problem.packed.empty() && (any_length || problem.kv_len) && problem.seq_len < 1) {
    throw BadInput(field("seq_len") + " must be at least 1, not " +
                   std::to_string(problem.seq_len));
  }
  // With kv_len, refusal() says what a kernel takes.
  if (problem.packed.empty() && !any_length && !problem.kv_len &&
      (problem.seq_len < 1 || problem.seq_len % 128 != 0 || problem.seq_len > kMostTokens)) {
    throw BadInput(field("seq_len") + " must be a multiple of 128 from 128 to 4194304, not " +
                   std::to_string(problem.seq_len));
  }
  const bool in_fp8 = problem.fp8 != Fp8::kNone;
  // refusal() says which of them a kernel takes. Kernels of FP8 rotate rows of a power of two.
  const int d = problem.head_dim;
  if (d != 64 && (d != 96 || in_fp8) && d != 128 && d != 256) {
    throw BadInput(field("head_dim") + " must be 64, " + (in_fp8 ? "" : "96, ") +
                   "128 or 256, not " + std::to_string(d));
  }
  if (problem.scores && !(problem.scores->std > 0 && problem.scores->std <= 1000)) {  // NaN is not
    throw BadInput(field("score_std") + " must be above 0 and at most 1000");
  }
  // The kernels' grids have batch * heads as their y or z dimension, which CUDA limits to 65535.
  if (uint64_t(problem.batch) * uint64_t(problem.heads) > 65535) {
    throw BadInput("batch * heads must be at most 65535, not " +
                   std::to_string(uint64_t(problem.batch) * uint64_t(problem.heads)));
  }
  if (problem.seq_len > kMostTokens) throw BadInput(field("seq_len") + " must be at most 4194304");
  if (problem.kv_heads && (*problem.kv_heads < 1 || problem.heads % *problem.kv_heads != 0)) {
    throw BadInput(field("kv_heads") + " must divide " + field("heads") + ", which are " +
                   std::to_string(problem.heads) + ", not be " + std::to_string(*problem.kv_heads));
  }
  if (problem.key_len() < (problem.packed.empty() ? 1 : 0) || problem.key_len() > kMostTokens) {
    throw BadInput(field("kv_len") + " must be from 1 to 4194304, not " +
                   std::to_string(problem.key_len()));
  }
  for (const Sequence& each : problem.packed) {
    if (std::min(each.q_len, each.kv_len) < 0)
      throw BadInput(field("cu_seqlens") + " must not be negative");
  }
  constexpr int kWidest = 1 << 30;
  const auto [left, right] = problem.window;
  if (std::min(left, right) < -1 || std::max(left, right) > kWidest) {
    throw BadInput(field("window") + " must be two numbers from -1, for all keys, to " +
                   std::to_string(kWidest) + ", not " + text_of(problem.window));
  }
  if (!(problem.softcap >= 0 && std::isfinite(problem.softcap))) {
    throw BadInput(field("softcap") + " must be above 0 and finite, or 0 for none");
  }
  if (problem.page_size != 0) {
    const int size = problem.page_size;
    if (size < 16 || size > 256 || (size & (size - 1)) != 0) {
      throw BadInput(field("page_size") + " must be 16, 32, 64, 128 or 256, not " +
                     std::to_string(size));
    }
    if (!problem.packed.empty())
      throw BadInput(field("page_size") + " does not go with " + field("cu_seqlens"));
    for (const int length : problem.kv_lens) {
      if (length < 0 || length > problem.key_len()) {
        throw BadInput(field("kv_lens") + " must be from 0 to " +
                       std::to_string(problem.key_len()) + ", the longest, not " +
                       std::to_string(length));
      }
    }
  }
  if (in_fp8 && !(problem.packed.empty() && problem.page_size == 0)) {
    throw BadInput(field("fp8") + " goes with neither " + field("cu_seqlens") + " nor " +
                   field("page_size"));
  }
  const size_t rows = std::max(problem.q_rows(), problem.kv_rows());
  if (std::min(problem.q_rows(), problem.kv_rows()) == 0 || rows > (1u << 30)) {
    throw BadInput(field("cu_seqlens") + " must have a sum from 1 to 1073741824");
  }
  const size_t elements = std::max(problem.element_count(), problem.kv_tensor_bytes() / 2);
  if (elements > (size_t(1) << 36)) {
    throw BadInput("the tensors would have " + std::to_string(elements * 2 >> 30) +
                   " GiB each; at most 128 GiB are supported");
  }
}

std::string refusal(const Kernel& kernel, const Problem& problem) {
  if (kernel.ceiling) return "";
  const Takes& takes = kernel.takes;
  std::string text;
  const auto add = [&](const std::string& accepted) {
    text += (text.empty() ? "takes " : "; ") + accepted;
  };
  const std::vector<int>& dims = kernel.head_dims;
  const bool known = std::find(dims.begin(), dims.end(), problem.head_dim) != dims.end();
  if (!known && !kernel.library) {  // which says itself what it does not take
    std::string all = std::to_string(dims.front());
    for (size_t i = 1; i < dims.size(); i++) {
      all += (i + 1 < dims.size() ? ", " : " or ") + std::to_string(dims[i]);
    }
    add(field("head_dim") + " " + all + ", not " + std::to_string(problem.head_dim));
  }
  if (problem.mask != Mask::kNone && !takes.causal) add(field("mask") + " none, not causal");
  if (problem.window != Window{} && !takes.window) {
    add(field("window") + " -1,-1, not " + text_of(problem.window));
  }
  if (problem.softcap > 0 && !takes.softcap)
    add("scores without a softcap (" + field("softcap") + ")");
  if (problem.alibi != Alibi::kNone && !takes.alibi) {
    add(field("alibi_slopes") + " none, not " + name_of(problem.alibi));
  }
  if (problem.sinks && !takes.sinks) add("heads without a sink (" + field("sinks") + ")");
  if (takes.fp8 && problem.fp8 == Fp8::kNone)
    add(field("fp8") + " head, tile or rotated, not none");
  if (!takes.fp8 && problem.fp8 != Fp8::kNone) {
    add(std::string(field("fp8") + " none, not ") + name_of(problem.fp8));
  }
  if (problem.page_size > 0 && !takes.paged)
    add("K and V in one piece, not in pages (" + field("page_size") + ")");
  if (!problem.packed.empty()) {
    if (!takes.packed)
      add("sequences of one length (" + field("seq_len") + "), not " + field("cu_seqlens"));
  } else if (!takes.any_length) {
    if (problem.seq_len % 128 != 0) {
      add("a multiple of 128 as the number of queries (" + field("seq_len") + "), not " +
          std::to_string(problem.seq_len));
    }
    if (problem.key_len() != problem.seq_len) {
      add("as many keys as queries (" + field("kv_len") + " " + std::to_string(problem.seq_len) +
          "), not " + std::to_string(problem.key_len()));
    }
  }
  if (problem.key_heads() != problem.heads && !takes.kv_heads) {
    add("as many heads of keys as of queries (" + field("kv_heads") + " " +
        std::to_string(problem.heads) + "), not " + std::to_string(problem.key_heads()));
  }
  if (problem.deterministic && !takes.deterministic) {
    add("gradients in any order of additions, not deterministic ones");
  }
  return text;
}

namespace {

// How many blocks, heads and rows a tensor has.
struct Extents {
  std::array<size_t, 3> sizes;
  Extents(const Problem& problem, bool of_keys)
      : sizes{size_t(problem.blocks()), size_t(problem.heads), problem.q_rows()} {
    if (of_keys) sizes = {sizes[0], size_t(problem.key_heads()), problem.kv_rows()};
    if (of_keys && problem.page_size > 0) {
      sizes[0] = size_t(problem.pages);
      sizes[2] = size_t(problem.page_size);
    }
  }
};

// The strides of `name`, or the contiguous ones where there are none and for a dimension of size 1,
// whose stride may be anything.
Strides checked(const std::string& name, const Strides& given, const Strides& contiguous,
                const Extents& extents, int head_dim, bool is_written) {
  if (given == Strides{}) return contiguous;
  Strides result = contiguous;
  std::vector<std::pair<long long, size_t>> dimensions;  // strides, and how many neighbours
  const auto take = [&](const char* dimension, long long stride, size_t size, long long& to) {
    if (size <= 1) return;
    // A tensor map's strides are multiples of 16 bytes below 2^40.
    if (stride < 0 || stride % 8 != 0 || stride >= 1LL << 39) {
      throw BadInput(name + "_strides." + dimension +
                     " must be a multiple of 8 from 0 to 2^39 - 8, not " + std::to_string(stride));
    }
    to = stride;
    dimensions.emplace_back(stride, size);
  };
  take("block", given.block, extents.sizes[0], result.block);
  take("head", given.head, extents.sizes[1], result.head);
  take("row", given.row, extents.sizes[2], result.row);
  if (!is_written) return result;
  std::sort(dimensions.begin(), dimensions.end());
  long long inside = head_dim;  // elements of what this dimension has many of
  for (const auto& [stride, size] : dimensions) {
    if (stride < inside) {
      throw BadInput(name + "_strides let rows of " + (name == "o" ? "" : "d") +
                     char(toupper(name[0])) + " overlap: each must have " +
                     std::to_string(head_dim) + " elements of its own");
    }
    inside = stride * (long long)(size);
  }
  return result;
}

}  // namespace

Tensors with_strides(const Problem& problem, const Tensors& tensors, bool gradients) {
  const Extents of_q(problem, false), of_k(problem, true);
  const Strides q = problem.strides(), k = problem.kv_strides();
  const int d = problem.head_dim;
  Tensors result = tensors;
  result.q_strides = checked("q", tensors.q_strides, q, of_q, d, gradients);
  result.k_strides = checked("k", tensors.k_strides, k, of_k, d, gradients);
  result.v_strides = checked("v", tensors.v_strides, k, of_k, d, gradients);
  result.o_strides = checked("o", tensors.o_strides, q, of_q, d, true);
  return result;
}

bool is_contiguous(const Problem& problem, const Tensors& t) {
  return t.q_strides == problem.strides() && t.o_strides == problem.strides() &&
         t.k_strides == problem.kv_strides() && t.v_strides == problem.kv_strides();
}

size_t span_bytes(const Problem& problem, const Strides& strides, bool of_keys) {
  const auto& sizes = Extents(problem, of_keys).sizes;
  if (std::min({sizes[0], sizes[1], sizes[2]}) == 0) return 0;
  return (strides.at(sizes[0] - 1, sizes[1] - 1, sizes[2] - 1) + size_t(problem.head_dim)) * 2;
}

void check_alignment(const void* pointer, const char* tensor) {
  if (!pointer) throw BadInput(std::string("the pointer to ") + tensor + " is null");
  if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) {
    throw BadInput(std::string("the pointer to ") + tensor + " is not a multiple of 16 bytes");
  }
}

void check_floats(const float* pointer, const char* name) {
  if (!pointer) throw BadInput(std::string("the pointer to ") + name + " is null");
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(float) != 0) {
    throw BadInput(std::string("the pointer to ") + name + " is not a multiple of 4 bytes");
  }
}

void check_pointers(const Tensors& tensors) {
  check_alignment(tensors.q, "Q");
  check_alignment(tensors.k, "K");
  check_alignment(tensors.v, "V");
  check_alignment(tensors.o, "O");
}

std::string refusal(const Kernel& kernel, const Problem& problem, const Tensors& with_strides) {
  if (const std::string why = refusal(kernel, problem); !why.empty()) return why;
  if (with_strides.lse && !kernel.takes.lse) return "has one output, without log-sum-exp";
  if (!is_contiguous(problem, with_strides) && !kernel.takes.strides) {
    return "takes contiguous tensors alone";
  }
  const int present = device_capability();
  if (present == 0) return "";  // the emulator runs everything
  const Needs& needs = kernel.needs;
  if (needs.exactly && present != needs.compute_capability) {
    return "needs a GPU of compute capability " + capability(needs.compute_capability) +
           ", this one has " + capability(present);
  }
  if (present < needs.compute_capability) {
    return "needs a GPU of compute capability " + capability(needs.compute_capability) +
           " or later, this one has " + capability(present);
  }
  if (problem.dtype == Dtype::kBf16 && present < needs.for_bf16) {
    return "takes " + field("dtype") + " fp16, not bf16, which needs a GPU of compute capability " +
           capability(needs.for_bf16) + " or later, this one has " + capability(present);
  }
  if (needs.shared_bytes == 0 || problem.head_dim != 128) return "";
  return lack_of_shared(size_t(needs.shared_bytes));
}

void check_e4m3(const Problem& problem, const Tensors& t, const OfE4m3& e4m3) {
  const auto strides = [&](const std::string& name, const Strides& s, const Extents& extents) {
    const std::array<long long, 3> all = {s.block, s.head, s.row};
    for (size_t i = 0; i < all.size(); i++) {
      if (extents.sizes[i] <= 1 || all[i] % 16 == 0) continue;
      constexpr std::array kNames = {"block", "head", "row"};
      throw BadInput(name + "_strides." + kNames[i] + " must be a multiple of 16 for e4m3, not " +
                     std::to_string(all[i]));
    }
  };
  strides("q", t.q_strides, Extents(problem, false));
  strides("k", t.k_strides, Extents(problem, true));
  if (!e4m3.v_transposed) {
    strides("v", t.v_strides, Extents(problem, true));
  } else if (t.v_strides != problem.kv_strides()) {
    throw BadInput("v_strides must be 0 where V is transposed, because it is contiguous");
  }
  const auto scales = [](const std::string& name, const ScalesOfE4m3& s, int heads) {
    if (reinterpret_cast<uintptr_t>(s.first) % alignof(float) != 0) {
      throw BadInput("the pointer to the scales of " + name + " must be a multiple of 4 bytes");
    }
    if (s.heads < 1 || heads % s.heads != 0) {
      throw BadInput("the scales of " + name + " must be for a divisor of its " +
                     std::to_string(heads) + " heads, not for " + std::to_string(s.heads));
    }
    if (std::min({s.block, s.head, s.tile}) < 0 || std::max({s.block, s.head, s.tile}) >> 31 != 0) {
      throw BadInput("the strides of the scales of " + name + " must be from 0 to 2^31 - 1");
    }
  };
  scales("Q", e4m3.q, problem.heads);
  scales("K", e4m3.k, problem.key_heads());
  scales("V", e4m3.v, problem.key_heads());
  if (e4m3.v.tile != 0) {
    throw BadInput(
        "V has a scale per head, because its tiles are added in one sum: tile must be 0");
  }
}

}  // namespace fa
