// The data of docs/interactive's pages, which `layouts` prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pages {

// Keys in the order written; numbers in fp32, with as few digits as tell them apart.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t,
                                  uint64_t, float>;

Json fragments();
Json descriptor();
Json banks();
Json softmax();

}  // namespace pages
