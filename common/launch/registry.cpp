#include "common/launch/registry.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/launch/launch.h"
#include "common/launch/problem.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

// A function's static: registrations run before main, in any order.
std::vector<Kernel>& registered() {
  static std::vector<Kernel> list;
  return list;
}

std::vector<Kernel>& twins() {
  static std::vector<Kernel> list;
  return list;
}

}  // namespace

void register_kernel(Kernel kernel) {
  auto& list = registered();
  const auto at =
      std::lower_bound(list.begin(), list.end(), kernel,
                       [](const Kernel& a, const Kernel& b) { return a.name < b.name; });
  list.insert(at, std::move(kernel));
}

const std::vector<Kernel>& kernels() { return registered(); }

void register_recording_twin(Kernel kernel) { twins().push_back(std::move(kernel)); }

bool has_recording_twins() { return !twins().empty(); }

const Kernel* recording_twin(const Kernel& kernel) {
  for (const Kernel& twin : twins()) {
    if (twin.name == kernel.name) return &twin;
  }
  return nullptr;
}

const Kernel& find_kernel(std::string_view name_or_number) {
  const bool next = name_or_number.ends_with(kNext);
  const std::string name(name_or_number), beyond = "beyond/" + name;
  std::string number = name.substr(0, name.size() - (next ? kNext.size() : 0));
  if (number.size() == 1) number.insert(0, "0");
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name || kernel.name == beyond ||
        (number.size() == 2 && kernel.name.starts_with(number + "_") && is_next(kernel) == next)) {
      return kernel;
    }
  }
  std::string names;
  for (const Kernel& kernel : kernels()) names += (names.empty() ? "" : ", ") + kernel.name;
  throw BadInput("unknown kernel '" + name + "', there are: " + names);
}

std::vector<const Kernel*> by_speed(const Problem& problem) {
  std::vector<const Kernel*> result;
  for (const Kernel& each : kernels()) {
    if (is_next(each) || each.library || each.ceiling) continue;
    if (!each.takes.fp8 || problem.fp8 != Fp8::kNone) result.push_back(&each);
  }
  std::map<const Kernel*, int> leads;  // asked once, as an estimate takes time
  for (const Kernel* each : result) leads[each] = each->leads ? each->leads(problem) : 0;
  const auto order = [&](const Kernel* each) {
    const bool numbered = isdigit(static_cast<unsigned char>(each->name[0])) != 0;
    return std::tuple(leads[each], each->traits, numbered, std::string_view(each->name));
  };
  std::sort(result.begin(), result.end(),
            [&](const Kernel* a, const Kernel* b) { return order(a) > order(b); });
  return result;
}

Choice best_kernel(const Problem& problem, const Tensors& with_strides) {
  return first_that_takes(by_speed(problem), problem, with_strides);
}

Choice first_that_takes(const std::vector<const Kernel*>& by_speed, const Problem& problem,
                        const Tensors& with_strides) {
  Choice choice;
  for (const Kernel* const each : by_speed) {
    std::string why = refusal(*each, problem, with_strides);
    if (why.empty()) {
      choice.kernel = each;
      return choice;
    }
    choice.faster.emplace_back(each, std::move(why));
  }
  // Those that take any length take most other things, too: what these cannot, none can.
  std::string all;
  for (const auto& [kernel, why] : choice.faster) {
    if (kernel->takes.any_length) all += (all.empty() ? "" : "; ") + kernel->name + " " + why;
  }
  if (all.empty() && !choice.faster.empty()) {
    all = choice.faster.front().first->name + " " + choice.faster.front().second;
  }
  throw Unsupported("no kernel takes this: " + all);
}

namespace {

using Part = std::function<void(const Problem&, const Tensors&)>;

// Calls these parts of the kernel, those that are there, after all checks.
void run_parts(std::initializer_list<const Part*> parts, const Kernel& kernel,
               const Problem& problem, const Tensors& tensors, const OfE4m3* e4m3 = nullptr) {
  validate(problem, kernel.takes.any_length || kernel.ceiling != nullptr);
  check_pointers(tensors);
  const Tensors all = with_strides(problem, tensors);
  if (const std::string why = refusal(kernel, problem, all); !why.empty()) throw Unsupported(why);
  if (problem.sinks) check_floats(tensors.sinks, "the sinks");
  if (problem.alibi != Alibi::kNone) check_floats(tensors.alibi_slopes, "ALiBi's slopes");
  if (e4m3) check_e4m3(problem, all, *e4m3);
  if (kernel.workspace_bytes) {
    const size_t needed = e4m3 ? kernel.e4m3_workspace_bytes(problem, e4m3->v_transposed)
                               : kernel.workspace_bytes(problem, tensors.workspace_bytes);
    if (needed > tensors.workspace_bytes) {
      throw Unsupported("needs a workspace of " + std::to_string(needed) + " bytes, " +
                        std::to_string(tensors.workspace_bytes) + " are allowed (" +
                        field("workspace_mib") + ")");
    }
  }
  launch_record().kernel = kernel.name.c_str();
  // Also after an exception, launches that do not come from here take the default stream.
  struct ForOneKernel {
    explicit ForOneKernel(void* stream) { launch_stream() = stream; }
    ~ForOneKernel() { launch_stream() = nullptr; }
  } const with_stream(tensors.stream);
  for (const Part* const part : parts) {
    if (*part) (*part)(problem, all);
  }
}

}  // namespace

void run(const Kernel& kernel, const Problem& problem, const Tensors& tensors) {
  run_parts({&kernel.prepare, &kernel.run}, kernel, problem, tensors);
}
void prepare(const Kernel& kernel, const Problem& problem, const Tensors& tensors) {
  run_parts({&kernel.prepare}, kernel, problem, tensors);
}
void run_prepared(const Kernel& kernel, const Problem& problem, const Tensors& tensors) {
  run_parts({&kernel.run}, kernel, problem, tensors);
}

void run_e4m3(const Kernel& kernel, const Problem& problem, const Tensors& tensors,
              const OfE4m3& e4m3) {
  if (!kernel.run_e4m3) throw Unsupported("takes Q, K and V of 16 bits, not e4m3");
  const Part part = [&](const Problem& same, const Tensors& all) {
    kernel.run_e4m3(same, all, e4m3);
  };
  run_parts({&part}, kernel, problem, tensors, &e4m3);
}

}  // namespace fa
