// gemm: the matrix products of docs/appendix/gemm.md, checked against float64, on a GPU timed
// beside cuBLASLt.
//
//   build/emulator/bin/gemm                        one small product, checked
//   build/cuda/bin/gemm --json gemm.json           the products of the appendix
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/checks.h"
#include "common/cli/cli.h"
#include "common/cli/parser.h"
#include "common/harness/files.h"
#include "common/harness/inputs.h"
#include "common/harness/results.h"
#include "common/launch/registry.h"

namespace fa::gemm {
namespace {

struct Task {
  Size size;
  Epilogue epilogue;
};

// The product under way: what is launched takes no arguments but this.
struct Current {
  Task task;
  Dtype dtype;
  Operands operands;
  Expected expected;
  Buffer a, b, bias, c;

  Current(const Task& of, Dtype type)
      : task(of),
        dtype(type),
        operands(make_operands(of.size, type, 1)),
        expected(make_expected(of.size, type, of.epilogue, operands)),
        a("A", operands.a.size() * 2),
        b("B", operands.b.size() * 2),
        bias("bias", operands.bias.size() * 2),
        c("C", size_t(of.size.m) * size_t(of.size.n) * 2) {
    a.upload(operands.a.data());
    b.upload(operands.b.data());
    bias.upload(operands.bias.data());
  }
  Product product() const {
    const auto [m, n, k] = task.size;
    return {m, n, k, dtype, task.epilogue, a.data(), b.data(), bias.data(), c.data()};
  }
};
Current* current = nullptr;

// To the harness each product is a ceiling: it brings its own FLOPs and its own check.
template <size_t kIndex>
fa::Kernel harness_kernel(const Ceiling& ceiling) {
  fa::Kernel kernel;
  kernel.name = kernels()[kIndex].name;
  kernel.needs = {75};  // run() knows more
  kernel.run = [](const Problem&, const Tensors&) {
    gemm::run(kernels()[kIndex], current->product());
  };
  kernel.ceiling = &ceiling;
  return kernel;
}

template <size_t kIndex>
Comparison verify(const Problem&) {
  current->c.poison();
  gemm::run(kernels()[kIndex], current->product());
  synchronize();
  std::vector<uint16_t> c(current->c.size() / 2);
  current->c.download(c.data());
  return compare_product(current->task.size, current->dtype, current->expected, c);
}

std::vector<fa::Kernel> harness_kernels(const std::set<std::string>& wanted) {
  const auto make = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    static Ceiling ceilings[] = {{0, 0, &verify<kIndex>}...};
    std::vector<fa::Kernel> all = {harness_kernel<kIndex>(ceilings[kIndex])...};
    for (Ceiling& each : ceilings) each.flops = current->product().flops();
    return all;
  };
  std::vector<fa::Kernel> all = make(std::make_index_sequence<5>());
  if (!wanted.empty()) {
    std::erase_if(all, [&](const fa::Kernel& kernel) { return !wanted.contains(kernel.name); });
  }
  return all;
}

Json record_of(const Record& record) {
  Json result = {{"kernel", record.kernel},   {"dtype", name_of(current->dtype)},
                 {"m", current->task.size.m}, {"n", current->task.size.n},
                 {"k", current->task.size.k}, {"epilogue", name_of(current->task.epilogue)}};
  const std::set<std::string> of_attention = {"batch", "heads", "seq_len", "head_dim"};
  const Json all = to_json(record);
  Json rest = Json::object();
  for (const auto& [name, value] : all.items()) {
    if (!result.contains(name) && !of_attention.contains(name)) rest[name] = value;
  }
  if (on_gpu() && rest.contains("shared_memory_bytes")) {
    rest["registers"] = record.registers;
    rest["spill_bytes"] = record.local_bytes;
  }
  result.update(rest);
  return result;
}

int run_all(int argc, char** argv) {
  Parser app(
      "Matrix products C = E(A B^T) with a fused epilogue E: checked against float64, then timed "
      "on a GPU.\n\n"
      "Example:\n  gemm wgmma_tma --size 4096,4096,4096 --epilogue bias_gelu");
  std::vector<std::string> names;
  std::vector<std::vector<int>> sizes;
  std::string epilogue, dtype = "bf16", file;
  Protocol protocol;
  protocol.rounds = 4;
  protocol.rest_ms = 100;
  protocol.max_seconds = 0.5;
  app.add_option("KERNEL", names, "default: all");
  std::vector<int> numbers;
  app.add_option("--size", numbers, "m,n,k; several times for several products")
      .values_with_commas();
  app.add_option("--epilogue", epilogue, "none or bias_gelu; default: both")
      .one_of({"none", "bias_gelu"});
  app.add_option("--dtype", dtype, "bf16 or fp16").one_of({"bf16", "fp16"});
  app.add_option("--rounds", protocol.rounds, "in each, every kernel is timed once").range(1, 100);
  app.add_option("--json", file, "write the results to a file");
  if (!app.parse(argc, argv)) return 0;
  for (const std::string& name : names) {
    if (std::none_of(kernels().begin(), kernels().end(),
                     [&](const Kernel& kernel) { return kernel.name == name; })) {
      std::string known;
      for (const Kernel& kernel : kernels())
        known += (known.empty() ? "" : ", ") + std::string(kernel.name);
      throw BadInput("there is no product '" + name + "'; there are " + known);
    }
  }
  if (numbers.size() % 3 != 0) throw BadInput("--size takes three numbers: m,n,k");
  for (const int number : numbers) {
    if (number < 1 || number > 1 << 16) throw BadInput("m, n and k are 1 to 65536");
  }
  std::vector<Task> tasks;
  const auto add = [&](const Size& size) {
    for (const Epilogue each : {Epilogue::kNone, Epilogue::kBiasGelu}) {
      if (epilogue.empty() || epilogue == name_of(each)) tasks.push_back({size, each});
    }
  };
  for (size_t i = 0; i < numbers.size(); i += 3) add({numbers[i], numbers[i + 1], numbers[i + 2]});
  if (numbers.empty() && on_gpu()) {
    for (const Size& size :
         {Size{8192, 8192, 8192}, Size{8192, 8192, 1024}, Size{16384, 16384, 128}}) {
      add(size);
    }
  } else if (numbers.empty()) {
    add({512, 512, 192});
  }
  if (!file.empty()) check_writable(file);

  const std::string created = utc_now();
  const std::set<std::string> wanted(names.begin(), names.end());
  Json records = Json::array();
  // The harness asks for a problem of attention; a ceiling takes nothing of it but the dtype.
  Problem problem;
  problem.dtype = dtype == "fp16" ? Dtype::kFp16 : Dtype::kBf16;
  Runner runner(problem, make_inputs(problem, "normal", 1), protocol);
  printf("%s\n", machine_title().c_str());
  int exit_code = 0;
  std::unique_ptr<Current> owner;  // gone before the back end's statics are
  for (const Task& task : tasks) {
    owner.reset();  // first, so that both need not fit
    owner = std::make_unique<Current>(task, problem.dtype);
    current = owner.get();
    printf("\n%s, C[%d][%d] of sums over %d, epilogue %s\n\n%-18s %-8s %9s", dtype.c_str(),
           task.size.m, task.size.n, task.size.k, name_of(task.epilogue), "kernel", "status",
           "error");
    printf(on_gpu() ? " %12s %9s %9s\n" : "\n", "median ms", "TFLOP/s", "clock MHz");
    const std::vector<fa::Kernel> kernels_here = harness_kernels(wanted);
    std::vector<const fa::Kernel*> chosen;
    for (const fa::Kernel& kernel : kernels_here) chosen.push_back(&kernel);
    for (const Record& record :
         measure(runner, chosen, protocol, [](const std::string&, int, int) {})) {
      printf("%-18s %-8s", record.kernel.c_str(), name_of(record.status));
      if (record.comparison && record.status == Status::kPassed) {
        printf(" %9.2e", record.comparison->rel);
        if (record.times) {
          printf(" %12.4f %9.1f %9.0f", record.times->median, record.tflops(record.times),
                 record.times->clock_mhz.value_or(0));
        }
      } else {
        printf(" %s", record.reason.substr(0, 70).c_str());
      }
      printf("\n");
      fflush(stdout);
      records.push_back(record_of(record));
      if (record.status == Status::kWrong) exit_code = std::max(exit_code, 1);
      if (record.status == Status::kError) exit_code = 3;
    }
  }
  if (!file.empty()) {
    const Json all = {{"gemm_version", 1},
                      {"created", created},
                      {"command", command_of(argc, argv)},
                      {"machine", describe_machine()},
                      {"protocol",
                       {{"warmup", protocol.warmup},
                        {"iterations", protocol.iterations},
                        {"rounds", protocol.rounds},
                        {"rest_ms", protocol.rest_ms},
                        {"max_seconds", protocol.max_seconds}}},
                      {"records", records}};
    write_file_whole(file, lines_of(all));
  }
  return exit_code;
}

}  // namespace
}  // namespace fa::gemm

int main(int argc, char** argv) {
  return fa::with_exit_code([&] { return fa::gemm::run_all(argc, argv); });
}
