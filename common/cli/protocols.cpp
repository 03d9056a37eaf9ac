#include "common/cli/protocols.h"
#include "common/launch/validation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fa {

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw BadInput(where_ + " is not a JSON object");
}

const Json& Fields::at(const std::string& name) const {
  if (!has(name)) throw BadInput(where_ + " lacks '" + name + "'");
  return object_[name];
}

int64_t Fields::whole(const std::string& name, int64_t least, int64_t most) const {
  const Json& value = at(name);
  // A number beyond int64 is unsigned for the library.
  if (!value.is_whole() || value > INT64_MAX || value.get<int64_t>() < least ||
      value.get<int64_t>() > most) {
    refuse(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value.get<int64_t>();
}

double Fields::number(const std::string& name, double least) const {
  const Json& value = at(name);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least) {
    refuse(name, least > 0 ? "a number above 0" : "a number from 0 on");
  }
  return value.get<double>();
}

bool Fields::flag(const std::string& name) const {
  const Json& value = at(name);
  if (!value.is_flag()) refuse(name, "true or false");
  return value.get<bool>();
}

std::string Fields::text(const std::string& name) const {
  const Json& value = at(name);
  if (!value.is_text()) refuse(name, "a text");
  return value.get<std::string>();
}

std::vector<int> Fields::lengths(const std::string& name) const {
  std::vector<int> result;
  const Json& value = at(name);
  if (!value.is_list() || value.empty()) refuse(name, "a list of lengths");
  for (size_t i = 0; i < value.size(); i++) {
    const Json each = {{"length", value[i]}};
    result.push_back(int(Fields(each, where_ + ": '" + name + "'").whole("length", 0)));
  }
  return result;
}

void Fields::refuse(const std::string& name, const std::string& should_be) const {
  throw BadInput(where_ + ": '" + name + "' must be " + should_be + ", not " +
                 object_[name].dump(/*ascii=*/true));
}

Problem read_problem(const Fields& fields, bool any_length) {
  Problem problem;
  const std::string dtype = fields.text("dtype");
  if (dtype != "fp16" && dtype != "bf16") {
    throw BadInput(fields.where() + ": 'dtype' must be fp16 or bf16, not " + dtype);
  }
  problem.dtype = dtype == "fp16" ? Dtype::kFp16 : Dtype::kBf16;
  const bool packed = fields.has("lengths");
  problem.batch = int(fields.whole("batch", 1));
  problem.heads = int(fields.whole("heads", 1));
  problem.seq_len = int(fields.whole("seq_len", packed ? 0 : 1));
  problem.head_dim = int(fields.whole("head_dim", 1));
  if (fields.has("score_std") || fields.has("score_growth")) {
    const std::string growth = fields.text("score_growth");
    if (growth != "flat" && growth != "growing") {
      throw BadInput(fields.where() + ": 'score_growth' must be flat or growing, not " + growth);
    }
    problem.scores = {fields.number("score_std", 0),
                      growth == "flat" ? Growth::kFlat : Growth::kGrowing};
  }
  if (fields.has("mask")) {
    const std::string mask = fields.text("mask");
    if (mask != "none" && mask != "causal") {
      throw BadInput(fields.where() + ": 'mask' must be none or causal, not " + mask);
    }
    problem.mask = mask == "causal" ? Mask::kCausal : Mask::kNone;
  }
  if (fields.has("window")) {
    const Json& window = fields.at("window");
    if (!window.is_list() || window.size() != 2) {
      throw BadInput(fields.where() + ": 'window' must be two numbers, not " + window.dump());
    }
    const Json sides = {{"left", window[0]}, {"right", window[1]}};
    const Fields of_window(sides, fields.where() + ": 'window'");
    problem.window = {int(of_window.whole("left", -1)), int(of_window.whole("right", -1))};
  }
  if (fields.has("softcap")) problem.softcap = float(fields.number("softcap", 0));
  if (fields.has("fp8")) {
    const std::string fp8 = fields.text("fp8");
    for (const Fp8 each : {Fp8::kHead, Fp8::kTile, Fp8::kRotated}) {
      if (fp8 == name_of(each)) problem.fp8 = each;
    }
    if (problem.fp8 == Fp8::kNone) {
      throw BadInput(fields.where() + ": 'fp8' must be head, tile or rotated, not " + fp8);
    }
  }
  if (fields.has("kv_len")) problem.kv_len = int(fields.whole("kv_len", packed ? 0 : 1));
  if (fields.has("kv_heads")) problem.kv_heads = int(fields.whole("kv_heads", 1));
  if (packed) {
    const std::vector<int> of_queries = fields.lengths("lengths");
    const std::vector<int> of_keys =
        fields.has("kv_lengths") ? fields.lengths("kv_lengths") : of_queries;
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < std::min(of_queries.size(), of_keys.size()); i++) {
      sequences.push_back({of_queries[i], of_keys[i]});
    }
    Problem same = problem;
    same.pack(sequences);
    if (of_keys.size() != of_queries.size() || same.batch != problem.batch ||
        same.seq_len != problem.seq_len || same.kv_len != problem.kv_len) {
      throw BadInput(fields.where() +
                     ": 'lengths' and 'kv_lengths' must have 'batch' numbers, and 'seq_len' and "
                     "'kv_len' must be the most of each");
    }
    problem = same;
  }
  try {
    validate(problem, any_length);
  } catch (const BadInput& error) {
    throw BadInput(fields.where() + ": " + error.what());
  }
  return problem;
}

namespace {

constexpr char kFile[] = "bench/protocols.json";

// The file's "protocols".
Json parse(const std::string& text) {
  const Json file = Json::parse(text, kFile);
  const Json& protocols = Fields(file, kFile).at("protocols");
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
  if (fields.has("in_a_row")) protocol.in_a_row = int(fields.whole("in_a_row", 1, 1000));
  return protocol;
}

NamedProtocol find_protocol(const std::string& name, const std::string& text) {
  const Json protocols = parse(text);
  if (!protocols.contains(name)) {
    std::string known;
    for (const auto& [key, each] : protocols.items()) known += (known.empty() ? "" : ", ") + key;
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
  const Json& problems = fields.at("problems");
  if (!problems.is_list() || problems.empty()) {
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
  const Json protocols = parse(protocols_json());
  for (const auto& [key, each] : protocols.items()) {
    std::string name = key;
    name.resize(std::max<size_t>(14, name.size() + 2), ' ');
    result += "  " + name + find_protocol(key).description + "\n";
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
