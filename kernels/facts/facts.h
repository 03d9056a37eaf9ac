// What the program `layouts` prints as JSON: for pictures, charts and docs/interactive's pages.
#pragma once

#include "common/harness/json.h"

namespace facts {

using Json = fa::Json;  // numbers in fp32, with as few digits as tell them apart

Json constants();  // and layouts()
Json layouts();
Json fragments();
Json descriptor();
Json banks();
Json softmax();

}  // namespace facts
