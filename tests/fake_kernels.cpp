// Kernels for the fake GPU: right ones of several speeds, wrong ones, ones that fail; a peer and
// ceilings; twins that record, if the environment has FAKE_GPU_RECORDS; a kernel that takes every
// problem, if it has FAKE_GPU_BEYOND. FAKE_GPU_SLOWER=500 makes each launch take 500 times as long,
// so that fewer of them, all checked on this CPU, fill a time under load.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "common/harness/oracle.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/ptx/hook.h"
#include "common/trace/recorder.h"
#include "tests/fake_gpu.h"
#include "tests/records.h"

namespace fa {
namespace {

using test::fake_gpu;

// Right, on the CPU; small problems only.
void attention(const Problem& problem, const Tensors& tensors) {
  const size_t count = problem.element_count(), kv_count = problem.kv_element_count();
  auto tensor = [&](const void* from, size_t elements) {
    const auto* const begin = static_cast<const uint16_t*>(from);
    return std::vector<uint16_t>(begin, begin + elements);
  };
  const Inputs inputs{tensor(tensors.q, count), tensor(tensors.k, kv_count),
                      tensor(tensors.v, kv_count)};
  const Reference reference = make_reference(problem, inputs, problem.seq_len);
  auto* const output = static_cast<uint16_t*>(tensors.o);
  for (size_t i = 0; i < count; i++) {
    output[i] = from_float(float(reference.values[i]), problem.dtype);
  }
  if (tensors.lse) std::copy(reference.lse.begin(), reference.lse.end(), tensors.lse);
}

// A launch that takes so long. Returns how many of this name there were before.
long launched(const char* name, double milliseconds = 1, std::optional<double> clock_mhz = 1980) {
  const std::vector<std::string> before = fake_gpu().what();
  fake_gpu().add(name);
  static const char* const slower = getenv("FAKE_GPU_SLOWER");
  fake_gpu().launch_ms = milliseconds * (slower ? atof(slower) : 1);
  fake_gpu().clock_mhz = clock_mhz;
  fake_gpu().power_w = clock_mhz ? std::optional<double>(500) : std::nullopt;
  launch_record().add(64, 1024, 0);
  return std::count(before.begin(), before.end(), name);
}

void right(const Problem& problem, const Tensors& tensors) {
  launched("right");
  attention(problem, tensors);
}

// Two CTAs of eight warps and a producer: 5000 cycles of products and softmax.
void recording(const Problem& problem, const Tensors& tensors) {
  using ptx::Event;
  RecordedLaunch recorded({dim3(2), dim3(288)});
  launched("recording", 1.25);
  attention(problem, tensors);
  ptx::Record* const records = recorded.target().records;
  if (!records || recorded.target().cta > 1) return recorded.finish();
  test::RecordWriter writer(records);
  constexpr uint32_t kFull = 0x1000, kEmpty = 0x1001;
  for (int warp = 0; warp < 9; warp++) writer.begin(warp, 1'000'000, 42'000, 5);
  for (uint64_t turn = 0, at = 1'000'100; turn < 5; turn++, at += 1000) {
    writer.wait(8, at, at + 50, Event::kMbarrierWait, 7, kEmpty);
    writer.at(8, at + 60, Event::kMbarrierExpectTx, 8, 16384 / 16);
    writer.at(8, at + 70, Event::kLoadTensor, 9, kFull);
    for (int warp = 0; warp < 8; warp++) {
      const uint64_t shift = warp / 4 * 300;
      writer.wait(warp, at, at + 400, Event::kMbarrierWait, 17, kFull);
      writer.products(warp, at + 410, at + 430, 18, 128, 8);
      writer.wait(warp, at + 440, at + 600 + shift, Event::kWgmmaWait, 20);
      writer.at(warp, at + 610 + shift, Event::kMbarrierArrive, 21, kEmpty);
    }
  }
  recorded.finish();
}

void warm(const Problem& problem, const Tensors& tensors) {
  launched("warm", 2, 1700);
  attention(problem, tensors);
}

void slow(const Problem& problem, const Tensors& tensors) {
  launched("slow", 10000, std::nullopt);
  attention(problem, tensors);
}

// Right once, then it writes nothing.
void right_once(const Problem& problem, const Tensors& tensors) {
  if (launched("right_once") == 0) attention(problem, tensors);
}

// Right into the buffers that it was given first.
void first_buffers(const Problem& problem, const Tensors& tensors) {
  static const void* first = nullptr;
  launched("first_buffers");
  if (!first) first = tensors.o;
  if (first == tensors.o) attention(problem, tensors);
}

// Right once; then it hands over what it computed first.
void remembers(const Problem& problem, const Tensors& tensors) {
  static std::vector<uint16_t> first;
  auto* const output = static_cast<uint16_t*>(tensors.o);
  const bool again = launched("remembers") > 0;
  if (again) {
    std::copy(first.begin(), first.end(), output);
  } else {
    attention(problem, tensors);
    first.assign(output, output + problem.element_count());
  }
}

// Every other launch does nothing.
void skips(const Problem& problem, const Tensors& tensors) {
  if (launched("skips") % 2 == 0) attention(problem, tensors);
}

// Off by up to 0.55 % of the row's largest element: what a kernel of eight bits might be.
void roughen(const Problem& problem, uint16_t* o) {
  static uint32_t state = 1;
  const auto d = size_t(problem.head_dim);
  for (size_t row = 0; row < problem.row_count(); row++) {
    float largest = 0;
    for (size_t i = 0; i < d; i++)
      largest = std::max(largest, std::fabs(to_float(o[row * d + i], problem.dtype)));
    for (size_t i = row * d; i < (row + 1) * d; i++) {
      state = state * 1664525 + 1013904223;
      const float part = float(state >> 8) * 0x1p-23f - 1;
      o[i] = from_float(to_float(o[i], problem.dtype) + 0.0055f * part * largest, problem.dtype);
    }
  }
}

// Exact where O is NaN, as it is when it is verified. Elsewhere it is quicker, and rough.
void exact_at_nan(const Problem& problem, const Tensors& tensors) {
  auto* const o = static_cast<uint16_t*>(tensors.o);
  const bool exact = *o == 0xffff;
  launched(exact ? "exact" : "rough", exact ? 1 : 0.1);
  attention(problem, tensors);
  if (!exact) roughen(problem, o);
}

// The same, by the number of the launch: exact when it is verified and when O is seen last.
void rough_between(const Problem& problem, const Tensors& tensors) {
  const long before = launched("rough_between");
  attention(problem, tensors);
  if (before != 0 && before != 6) roughen(problem, static_cast<uint16_t*>(tensors.o));
}

// Keeps O, and repeats on it the changes of V's first row.
void repeats_signs(const Problem& problem, const Tensors& tensors) {
  static std::vector<uint16_t> kept, first_row;
  const auto* const v = static_cast<const uint16_t*>(tensors.v);
  auto* const o = static_cast<uint16_t*>(tensors.o);
  const auto d = size_t(problem.head_dim);
  if (launched("repeats_signs") == 0) {
    attention(problem, tensors);
    kept.assign(o, o + problem.element_count());
    first_row.assign(v, v + d);
  }
  for (size_t i = 0; i < kept.size(); i++) o[i] = kept[i] ^ first_row[i % d] ^ v[i % d];
}

// Empties V, so that O is zeros, which is soon written.
void empties_v(const Problem& problem, Tensors tensors) {
  if (launched("empties_v") == 0) return attention(problem, tensors);
  auto* const v = static_cast<uint16_t*>(const_cast<void*>(tensors.v));
  std::fill_n(v, problem.kv_element_count(), uint16_t(0));
  std::fill_n(static_cast<uint16_t*>(tensors.o), problem.element_count(), uint16_t(0));
}

// One element of the last row is never written.
void leaves_one(const Problem& problem, const Tensors& tensors) {
  auto* const last = static_cast<uint16_t*>(tensors.o) + problem.element_count() - 1;
  const uint16_t before = *last;
  const bool again = launched("leaves_one") > 0;
  attention(problem, tensors);
  if (again) *last = before;
}

// Its work is not on the stream that is timed: it is done when somebody waits for the whole GPU.
void other_stream(const Problem& problem, const Tensors& tensors) {
  launched("other_stream", 0.001);
  fake_gpu().elsewhere.push_back([=] { attention(problem, tensors); });
}

// The sum of each row's exponentials is the one of the first launch.
void remembers_sums(const Problem& problem, const Tensors& tensors) {
  static std::vector<double> first;
  launched("remembers_sums");
  attention(problem, tensors);
  const auto d = size_t(problem.head_dim), n = size_t(problem.seq_len);
  const auto* const q = static_cast<const uint16_t*>(tensors.q);
  const auto* const k = static_cast<const uint16_t*>(tensors.k);
  auto* const o = static_cast<uint16_t*>(tensors.o);
  const auto real = [&](uint16_t bits) { return double(to_float(bits, problem.dtype)); };
  std::vector<double> sums(n);
  for (size_t row = 0; row < n; row++) {
    for (size_t key = 0; key < n; key++) {
      double score = 0;
      for (size_t i = 0; i < d; i++) score += real(q[row * d + i]) * real(k[key * d + i]);
      sums[row] += std::exp(score * double(problem.scale()));
    }
  }
  if (first.empty()) first = sums;
  for (size_t i = 0; i < n * d; i++) {
    o[i] = from_float(float(real(o[i]) * sums[i / d] / first[i / d]), problem.dtype);
  }
}

// After the first launch it leaves out the second half of each row.
void half(const Problem& problem, const Tensors& tensors) {
  const bool again = launched("half") > 0;
  auto* const o = static_cast<uint16_t*>(tensors.o);
  const std::vector<uint16_t> before(o, o + problem.element_count());
  attention(problem, tensors);
  const auto d = size_t(problem.head_dim);
  for (size_t i = 0; again && i < before.size(); i++) {
    if (i % d >= d / 2) o[i] = before[i];
  }
}

// The first launch's log-sum-exp stays.
void lse_once(const Problem& problem, Tensors tensors) {
  if (launched("lse_once") > 0) tensors.lse = nullptr;
  attention(problem, tensors);
}

// Right, but the last bit of an element is another one each time.
void noisy(const Problem& problem, const Tensors& tensors) {
  static int launches = 0;
  launched("noisy");
  attention(problem, tensors);
  static_cast<uint16_t*>(tensors.o)[launches++ % 64] ^= 1;
}

void unsupported(const Problem&, const Tensors&) { throw Unsupported("needs another GPU"); }

void fatal(const Problem&, const Tensors&) {
  fake_gpu().lost = true;
  throw BackendError("06_fatal: an illegal address");
}

Comparison compare_nothing(const Problem&) {
  Comparison result;
  result.passed = true;
  result.tolerance = 1;
  result.checked_rows = 1;
  return result;
}

const bool registered = [] {
  register_kernel({"01_right", {}, nullptr, &right});
  register_kernel({"02_warm", {}, nullptr, &warm});
  register_kernel({"03_slow", {}, nullptr, &slow});
  register_kernel({"04_right_once", {}, nullptr, &right_once});
  register_kernel({"05_unsupported", {}, nullptr, &unsupported});
  register_kernel({"06_fatal", {}, nullptr, &fatal});
  register_kernel({"07_first_buffers", {}, nullptr, &first_buffers});
  register_kernel({"08_remembers", {}, nullptr, &remembers});
  register_kernel({"09_skips", {}, nullptr, &skips});
  register_kernel({"10_exact_at_nan", {}, nullptr, &exact_at_nan});
  register_kernel({"11_other_stream", {}, nullptr, &other_stream});
  register_kernel({"12_remembers_sums", {}, nullptr, &remembers_sums});
  register_kernel({"13_half", {}, nullptr, &half});
  register_kernel({"14_noisy", {}, nullptr, &noisy});
  Kernel two_outputs{"15_lse_once", {}, nullptr, &lse_once};
  two_outputs.takes.lse = true;
  register_kernel(two_outputs);
  register_kernel({"16_repeats_signs", {}, nullptr, &repeats_signs});
  register_kernel({"17_rough_between", {}, nullptr, &rough_between});
  register_kernel({"18_empties_v", {}, nullptr, &empties_v});
  register_kernel({"19_leaves_one", {}, nullptr, &leaves_one});
  if (getenv("FAKE_GPU_BEYOND")) {
    Kernel beyond{"beyond/right", {}, nullptr, &right};
    beyond.takes = kEveryProblem;
    register_kernel(beyond);
  }
  if (getenv("FAKE_GPU_RECORDS")) register_recording_twin({"01_right", {}, nullptr, &recording});
  static const auto library = [] { return Library{"Fake", "1.0", "none"}; };
  static const Ceiling matmul{1e9, 0, &compare_nothing}, copy{0, 2e6, &compare_nothing};
  const auto nothing = [](const Problem&, const Tensors&) { launched("ceiling", 2); };
  register_kernel({"ceiling/copy", {}, nullptr, nothing, library, &copy});
  register_kernel({"ceiling/matmul", {}, nullptr, nothing, library, &matmul});
  Kernel peer{"peer/fake", {}, nullptr, &right, library};
  peer.takes = kEveryProblem;
  register_kernel(peer);
  return true;
}();

}  // namespace
}  // namespace fa
