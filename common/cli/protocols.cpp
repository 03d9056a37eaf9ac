#include "common/cli/protocols.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "common/cli/json_fields.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

constexpr char kFile[] = "bench/protocols.json";

// Of the whole file: its "protocols".
nlohmann::json parse(const std::string& text) {
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) throw BadInput(std::string(kFile) + " is not JSON");
  const nlohmann::json& protocols = Fields(file, kFile).at("protocols");
  if (!protocols.is_object()) throw BadInput(std::string(kFile) + ": 'protocols' is not an object");
  return protocols;
}

}  // namespace

Protocol read_settings(const Fields& fields) {
  Protocol protocol;
  protocol.warmup = int(fields.whole("warmup", 0, 1 << 20));
  protocol.iterations = int(fields.whole("iterations", 1, 1 << 20));
  protocol.rounds = int(fields.whole("rounds", 1, 1000));
  protocol.max_seconds = fields.number("max_seconds", 1e-3);
  protocol.rest_ms = fields.number("rest_ms", 0);
  protocol.load_seconds = fields.number("load_seconds", 0);
  protocol.flush_l2 = fields.flag("flush_l2");
  protocol.rotating_inputs = int(fields.whole("rotating_inputs", 1, 64));
  return protocol;
}

NamedProtocol find_protocol(const std::string& name, const std::string& json) {
  const nlohmann::json protocols = parse(json);
  if (!protocols.contains(name)) {
    std::string known;
    for (const auto& each : protocols.items()) known += (known.empty() ? "" : ", ") + each.key();
    throw BadInput("unknown protocol '" + name + "', there are: " + known);
  }
  const std::string where = std::string(kFile) + ": " + name;
  const Fields fields(protocols[name], where);
  NamedProtocol result;
  result.description = fields.text("description");
  result.protocol = read_settings(fields);
  result.protocol.name = name;
  if (fields.text("tflops_convention") != "4*B*H*N^2*D") {
    throw BadInput(where + ": 'tflops_convention' must be 4*B*H*N^2*D, the only one known here");
  }
  const nlohmann::json& problems = fields.at("problems");
  if (!problems.is_array() || problems.empty()) {
    throw BadInput(where + ": 'problems' must be a list of at least one");
  }
  for (size_t i = 0; i < problems.size(); i++) {
    std::string place = where;
    place.append(", problem ").append(std::to_string(i + 1));
    result.problems.push_back(read_problem(Fields(problems[i], place)));
  }
  return result;
}

std::string describe_protocols() {
  std::string result;
  const nlohmann::json protocols = parse(protocols_json());
  for (const auto& each : protocols.items()) {
    std::string name = each.key();
    name.resize(std::max<size_t>(14, name.size() + 2), ' ');
    result += "  " + name + find_protocol(each.key()).description + "\n";
  }
  return result;
}

void make_small(NamedProtocol& protocol) {
  std::vector<Problem> small;
  for (Problem problem : protocol.problems) {
    problem.batch = problem.heads = 1;
    problem.seq_len = 256;
    problem.kv_len.reset();
    problem.kv_heads.reset();
    problem.packed.clear();
    problem.kv_lens.clear();
    problem.page_size = problem.pages = 0;
    if (std::find(small.begin(), small.end(), problem) == small.end()) small.push_back(problem);
  }
  protocol.problems = small;
  protocol.protocol.name.clear();
  protocol.protocol.rounds = 1;
}

}  // namespace fa
