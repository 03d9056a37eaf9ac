#include "common/cli/serve.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "common/cli/json_fields.h"
#include "common/harness/device.h"
#include "common/harness/files.h"
#include "common/harness/inputs.h"
#include "common/harness/results.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"
#include "common/launch/registry.h"

namespace fa {
namespace {

using json = nlohmann::ordered_json;

class Server {
 public:
  explicit Server(const Protocol& defaults) : protocol_(defaults) {}

  json answer(const std::string& line) {
    const nlohmann::json request = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (request.is_discarded()) throw BadInput("the request is not JSON");
    const std::string op = Fields(request, "the request").text("op");
    const Fields fields(request, op);
    if (op == "describe") return describe();
    if (op == "problem") return problem(fields);
    if (op == "tensors") return tensors(fields);
    if (op == "verify") return {{"record", to_json(runner().verify(kernel(fields)))}};
    if (op == "time") return time(fields);
    if (op == "quit") {
      quit_ = true;
      return json::object();
    }
    throw BadInput("unknown op '" + op +
                   "', there are: describe, problem, tensors, verify, time, quit");
  }

  bool quit() const { return quit_; }

 private:
  static json describe() {
    json names = json::array();
    for (const Kernel& each : kernels()) names.push_back(each.name);
    return {{"machine", describe_machine()}, {"kernels", names}};
  }

  json problem(const Fields& fields) {
    const auto begin = std::chrono::steady_clock::now();
    const Problem problem = read_problem(fields);
    protocol_.inputs = fields.text("inputs");
    protocol_.seed = uint64_t(fields.whole("seed", 0, INT64_MAX));
    protocol_.flush_l2 = fields.flag("flush_l2");
    protocol_.rotating_inputs = int(fields.whole("rotating_inputs", 1, 64));
    runner_.reset();  // first, so that both need not fit
    runner_ = std::make_unique<Runner>(
        problem, make_inputs(problem, protocol_.inputs, protocol_.seed), protocol_);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return {{"seconds", taken.count()}};
  }

  static json tensors(const Fields& fields) {
    const Inputs inputs = make_inputs(read_problem(fields), fields.text("inputs"),
                                      uint64_t(fields.whole("seed", 0, INT64_MAX)));
    json files = json::array();
    const auto write = [&](const char* name, const std::vector<uint16_t>& bits) {
      const std::string path = fields.text("folder") + "/" + name;
      write_file_whole(path, {reinterpret_cast<const char*>(bits.data()), bits.size() * 2});
      files.push_back(path);
    };
    write("q", inputs.q);
    write("k", inputs.k);
    write("v", inputs.v);
    return {{"files", files}};
  }

  json time(const Fields& fields) {
    Timing timing;
    timing.warmup = int(fields.whole("warmup", 0, 1 << 20));
    timing.iterations = int(fields.whole("iterations", 1, 1 << 20));
    timing.max_seconds = fields.number("max_seconds", 1e-3);
    timing.idle_ms = fields.number("idle_ms", 0);
    return to_json(runner().time(kernel(fields), timing));
  }

  static const Kernel& kernel(const Fields& fields) { return find_kernel(fields.text("kernel")); }

  Runner& runner() {
    if (!runner_) throw BadInput("there is no problem yet: ask for one with the op problem");
    return *runner_;
  }

  Protocol protocol_;
  std::unique_ptr<Runner> runner_;
  bool quit_ = false;
};

}  // namespace

int serve(std::istream& requests, std::ostream& answers, const Protocol& defaults) {
  Server server(defaults);
  for (std::string line; !server.quit() && std::getline(requests, line);) {
    json answer;
    try {
      answer = server.answer(line);
    } catch (const std::bad_alloc&) {
      answer = {{"error", "not enough memory for this problem"}};
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    // Text from the request may be no UTF-8.
    answers << answer.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
    if (gpu_is_lost()) return 3;
  }
  return 0;
}

}  // namespace fa
