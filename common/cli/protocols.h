// Named protocols: on which problems, with how many launches, kernels are measured. They are data,
// bench/protocols.json, which Python reads too; programs carry a copy and work from any folder.
#pragma once

#include <string>
#include <vector>

#include "common/cli/json_fields.h"
#include "common/harness/runner.h"
#include "common/launch/problem.h"

namespace fa {

struct NamedProtocol {
  std::string description;
  Protocol protocol;
  std::vector<Problem> problems;
};

// Reads how launches are measured from a JSON object: warmup, iterations, rounds, max_seconds,
// rest_ms, load_seconds, flush_l2 and rotating_inputs. Throws BadInput if one is missing or wrong.
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
