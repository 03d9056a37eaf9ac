#include "common/cli/json_fields.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "common/launch/problem.h"

namespace fa {

Fields::Fields(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw BadInput(where_ + " is not a JSON object");
}

const nlohmann::json& Fields::at(const std::string& name) const {
  if (!has(name)) throw BadInput(where_ + " lacks '" + name + "'");
  return object_[name];
}

int64_t Fields::whole(const std::string& name, int64_t least, int64_t most) const {
  const nlohmann::json& value = at(name);
  // A number beyond int64 is unsigned for the library.
  if (!value.is_number_integer() || (value.is_number_unsigned() && value > INT64_MAX) ||
      value.get<int64_t>() < least || value.get<int64_t>() > most) {
    refuse(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value.get<int64_t>();
}

double Fields::number(const std::string& name, double least) const {
  const nlohmann::json& value = at(name);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least) {
    refuse(name, least > 0 ? "a number above 0" : "a number from 0 on");
  }
  return value.get<double>();
}

bool Fields::flag(const std::string& name) const {
  const nlohmann::json& value = at(name);
  if (!value.is_boolean()) refuse(name, "true or false");
  return value.get<bool>();
}

std::string Fields::text(const std::string& name) const {
  const nlohmann::json& value = at(name);
  if (!value.is_string()) refuse(name, "a text");
  return value.get<std::string>();
}

void Fields::refuse(const std::string& name, const std::string& should_be) const {
  throw BadInput(where_ + ": '" + name + "' must be " + should_be + ", not " +
                 object_[name].dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

Problem read_problem(const Fields& fields) {
  Problem problem;
  const std::string dtype = fields.text("dtype");
  if (dtype != "fp16" && dtype != "bf16") {
    throw BadInput(fields.where() + ": 'dtype' must be fp16 or bf16, not " + dtype);
  }
  problem.dtype = dtype == "fp16" ? Dtype::kFp16 : Dtype::kBf16;
  problem.batch = int(fields.whole("batch", 1));
  problem.heads = int(fields.whole("heads", 1));
  problem.seq_len = int(fields.whole("seq_len", 1));
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
  if (fields.has("kv_len")) problem.kv_len = int(fields.whole("kv_len", 1));
  if (fields.has("kv_heads")) problem.kv_heads = int(fields.whole("kv_heads", 1));
  try {
    validate(problem);
  } catch (const BadInput& error) {
    throw BadInput(fields.where() + ": " + error.what());
  }
  return problem;
}

}  // namespace fa
