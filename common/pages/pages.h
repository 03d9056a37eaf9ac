// The data of docs/interactive's pages and of docs/pictures, which `layouts` prints.
#pragma once

#include "common/harness/json.h"

namespace pages {

using Json = fa::Json;  // numbers in fp32, with as few digits as tell them apart

Json constants();
Json fragments();
Json descriptor();
Json banks();
Json softmax();

}  // namespace pages
