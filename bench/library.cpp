#include "bench/library.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/cli/protocols.h"
#include "common/harness/device.h"
#include "common/harness/inputs.h"
#include "common/harness/results.h"
#include "common/harness/sources.h"
#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/launch/registry.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

// What is refused is what scripts/fa bench was asked for.
[[maybe_unused]] const bool named = [] {
  name_fields_as_options();
  return true;
}();

Json parsed(const char* text) {
  const Json request = Json::parse(text, "the request");
  return request;
}

void call(FaBenchPeer peer, FaBenchTask task, const Tensors& tensors, void* o) {
  char sentence[512] = "";
  const int code =
      peer(task, tensors.q, tensors.k, tensors.v, o, tensors.stream, sentence, sizeof sentence);
  if (code == 1) throw Unsupported(sentence);
  if (code != 0) throw BackendError(sentence);
}

// Rows of each head. Where there are many heads or keys there are fewer: what they cost does not
// grow. In FP8 there are two references, of the inputs before rounding and after it.
int rows_of_reference(const Problem& problem) {
  constexpr int kMost = 512, kLeast = 32;
  const int kPairs = 1 << (problem.fp8 == Fp8::kNone ? 28 : 24);
  const double keys_of_all = double(problem.batch) * problem.heads * problem.key_len();
  return std::max(kLeast, int(std::min(double(kMost), kPairs / std::max(1.0, keys_of_all))));
}

Json describe() {
  Json names = Json::array();
  for (const Kernel& each : kernels()) names.push_back(each.name);
  Json of_gradients = Json::array();
  for (const GradientKernel& each : gradient_kernels()) of_gradients.push_back(each.kernel.name);
  return {{"machine", describe_machine()}, {"kernels", names}, {"gradients", of_gradients}};
}

// The kernel that "best" stands for on this problem, where tensors are contiguous and nobody wants
// log-sum-exp. Empty if no kernel takes it.
std::string chosen_for(const Problem& problem) {
  try {
    return best_kernel(problem, with_strides(problem, {})).kernel->name;
  } catch (const Unsupported&) {
    return "";
  }
}

// One launch of a kernel of gradients, or what it would need.
Json gradients(const Fields& fields) {
  const GradientKernel& kernel = find_gradient_kernel(fields.text("kernel"));
  Problem problem = read_problem(fields, /*any_length=*/true);
  problem.deterministic = fields.has("gradients") && fields.text("gradients") == "deterministic";
  if (const std::string why = refusal(kernel.kernel, problem); !why.empty()) {
    return {{"refused", why}};
  }
  if (!fields.has("pointers")) {
    const size_t bytes =
        kernel.kernel.workspace_bytes ? kernel.kernel.workspace_bytes(problem, SIZE_MAX) : 0;
    return {{"workspace_bytes", uint64_t(bytes)}};
  }
  const Json& pointers = fields.at("pointers");
  const auto pointer = [&](const char* name) {
    return reinterpret_cast<void*>(
        uintptr_t(Fields(pointers, "'pointers'").whole(name, 0, INT64_MAX)));
  };
  GradientTensors tensors;
  tensors.forward.q = pointer("q");
  tensors.forward.k = pointer("k");
  tensors.forward.v = pointer("v");
  tensors.forward.o = pointer("o");
  tensors.forward.lse = static_cast<float*>(pointer("lse"));
  tensors.d_o = pointer("d_o");
  tensors.d_q = pointer("d_q");
  tensors.d_k = pointer("d_k");
  tensors.d_v = pointer("d_v");
  tensors.forward.workspace = pointer("workspace");
  tensors.forward.workspace_bytes = size_t(fields.whole("workspace_bytes", 0, INT64_MAX));
  tensors.forward.stream = pointer("stream");
  launch_record() = LaunchRecord{};
  run(kernel, problem, tensors);
  const LaunchRecord& record = launch_record();
  return {{"source", source_of("backward/" + kernel.kernel.name)},
          {"registers", record.registers},
          {"shared_memory_bytes", uint64_t(record.shared_bytes)},
          {"spill_bytes", uint64_t(record.local_bytes)}};
}

// The clock and the power of the GPU now, where the driver tells them.
Json sample() {
  const GpuState state = sample_gpu();
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  return {{"clock_mhz", number(state.clock_mhz)}, {"power_w", number(state.power_w)}};
}

// The runner of the latest problem, whose tensors stay on the GPU for the next request.
class Measuring {
 public:
  Json measure(const Fields& fields, FaBenchSay say) {
    std::vector<const Kernel*> chosen;
    const Json& names = fields.at("kernels");
    if (!names.is_list() || names.empty()) throw BadInput("measure: 'kernels' must be names");
    for (const auto& name : names) {
      if (!name.is_text()) throw BadInput("measure: 'kernels' must be names");
      chosen.push_back(&find_kernel(name.get<std::string>()));
    }
    const Problem problem = read_problem(fields, /*any_length=*/true);
    Protocol protocol = read_settings(fields);
    protocol.inputs = fields.text("inputs");
    protocol.seed = uint64_t(fields.whole("seed", 0, INT64_MAX));
    const Say tell = [&](const std::string& what, int done, int steps) {
      if (say && say(what.c_str(), done, steps) != 0) throw std::runtime_error("interrupted");
    };
    tell("making inputs and reference", 0, 1);
    runner_.reset();  // first, so that both need not fit
    runner_ =
        std::make_unique<Runner>(problem, make_inputs(problem, protocol.inputs, protocol.seed),
                                 protocol, rows_of_reference(problem));
    const std::string best = chosen_for(problem);
    Json records = Json::array();
    for (const Record& record : fa::measure(*runner_, chosen, protocol, tell)) {
      Json& written = records.push_back(to_json(record));
      if (record.kernel == best) written["chosen"] = true;
    }
    return {{"records", records}};
  }

 private:
  std::unique_ptr<Runner> runner_;
};

Json answer(const char* request, FaBenchSay say) {
  // Left to the end of the process, as CUDA itself ends before the destructors of statics.
  static Measuring& measuring = *new Measuring;
  try {
    const Json object = parsed(request);
    const std::string op = Fields(object, "the request").text("op");
    if (op == "describe") return describe();
    if (op == "measure") return measuring.measure(Fields(object, op), say);
    if (op == "gradients") return gradients(Fields(object, op));
    if (op == "sample") return sample();
    throw BadInput("unknown op '" + op + "', there are: describe, measure, gradients, sample");
  } catch (const std::bad_alloc&) {
    return {{"error", "not enough memory for this problem"}, {"lost", gpu_is_lost()}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}, {"lost", gpu_is_lost()}};
  }
}

}  // namespace
}  // namespace fa

const char* fa_bench_add(const char* json, FaBenchPeer peer) {
  static std::string problem;
  try {
    const fa::Json object = fa::parsed(json);
    const fa::Fields fields(object, "the peer");
    const fa::Fields of_library(fields.at("library"), "the peer's library");
    const fa::Library library{of_library.text("name"), of_library.text("version"),
                              of_library.text("implementation")};
    using fa::Tensors;
    fa::Kernel kernel;
    kernel.name = fields.text("kernel");
    kernel.takes = fa::kEveryProblem;  // the library itself says what it does not take
    kernel.takes.fp8 = fields.has("fp8") && fields.at("fp8").get<bool>();
    kernel.library = [=] { return library; };
    kernel.run = [=](const fa::Problem&, const Tensors& t) {
      fa::call(peer, kFaBenchLaunch, t, t.o);
    };
    if (kernel.takes.fp8) {
      kernel.own_rounding = true;
      kernel.prepare = [=](const fa::Problem&, const Tensors& t) {
        fa::call(peer, kFaBenchPrepare, t, t.o);
      };
    }
    kernel.output = [=](const Tensors& t) {
      FaBenchOutput rows{};
      fa::call(peer, kFaBenchOutput, t, &rows);
      return fa::OutputRows{rows.data, {rows.block_stride, rows.head_stride, rows.row_stride}};
    };
    fa::register_kernel(kernel);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

const char* fa_bench_request(const char* json, FaBenchSay say) {
  static std::string text;
  // Text from the request may be no UTF-8.
  text = fa::answer(json, say).dump();
  return text.c_str();
}
