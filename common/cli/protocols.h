// Named protocols: on which problems, with how many launches, kernels are measured. They are data,
// bench/protocols.json, which Python reads too; programs carry a copy and work from any folder.
// bench/library.cpp reads requests of the same fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/harness/json.h"    // IWYU pragma: export
#include "common/harness/runner.h"  // IWYU pragma: export
#include "common/launch/problem.h"  // IWYU pragma: export

namespace fa {

// Fields of a JSON object from outside: of the type and in the range asked for, or BadInput with
// one sentence that names the field.
class Fields {
 public:
  // `where` begins every sentence: "bench/protocols.json: quick".
  Fields(const Json& object, std::string where);

  bool has(const std::string& name) const { return object_.contains(name); }
  const Json& at(const std::string& name) const;  // whatever it is
  int64_t whole(const std::string& name, int64_t least, int64_t most = 1 << 30) const;
  double number(const std::string& name, double least) const;  // least included; finite
  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::vector<int> lengths(const std::string& name) const;  // whole numbers from 0 on
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& should_be) const;

  const Json& object_;
  std::string where_;
};

// dtype, batch, heads, seq_len and head_dim; score_std and score_growth, both or neither; mask,
// fp8, kv_len, kv_heads, lengths and kv_lengths, where there are any. Throws BadInput, also for a
// shape that makes no sense and, without any_length, for a seq_len that is no multiple of 128.
Problem read_problem(const Fields& fields, bool any_length = false);

struct NamedProtocol {
  std::string description;
  Protocol protocol;
  std::vector<Problem> problems;
};

// Reads how launches are measured from a JSON object: warmup, iterations, rounds, max_seconds,
// rest_ms, load_seconds, flush_l2 and rotating_inputs, and in_a_row if it is there. Throws BadInput
// if one is missing or wrong.
Protocol read_settings(const Fields& fields);

// bench/protocols.json, as it was when the program was built.
const char* protocols_json();

// One protocol of a file like bench/protocols.json. Throws BadInput for an unknown name or a file
// that is not one, naming the place.
NamedProtocol find_protocol(const std::string& name, const std::string& json = protocols_json());

// The protocols' names and descriptions, for --help: one a line.
std::string describe_protocols();

// What a protocol becomes on the emulator, which would take hours: each dtype and head size once,
// on 256 tokens of one head. Without a name, because it is another one.
void make_small(NamedProtocol& protocol);

}  // namespace fa
